package cli_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/testbin"
	"github.com/tidewire/tidewire/internal/testkit"
)

// TestConfig_Limits: the defaults depend on the mode.
func TestConfig_Limits(t *testing.T) {
	t.Parallel()
	for mode, args := range map[string][]string{"0 ": nil, "20 ": {"--auth-secret-file", secretFile(t, serverSecret)}} {
		code, out, errOut := run(t, nil, append([]string{"config"}, args...)...)
		if code != cli.ExitOK || !strings.Contains(out, "max-user-connections = "+mode) || !strings.Contains(out, "max-connections = 20000 ") {
			t.Errorf("%v: %d %s %s", args, code, out, errOut)
		}
	}
}

// TestServe_FewFiles: a server warns of too few file descriptors if it cannot have the connections that were asked for, and
// not at its first start on an ordinary machine.
func TestServe_FewFiles(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{"": false, "--max-connections=1000": false, "--max-connections=30000": true} {
		p := testbin.Serve(t, exec.Command("sh", "-c", `ulimit -n 2000; exec "$0" serve --only echo --port 0 $1`, tidewire(t), args))
		if got := strings.Contains(p.Log(), "level=WARN"); got != want {
			t.Errorf("%q: %s", args, p.Log())
		}
	}
}

// TestServe_Sockets: sockets that send no request count. With more than there may be, the server closes them, and serves again when some have ended.
func TestServe_Sockets(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "chat", "--max-connections", "5", "--max-header-bytes", "8KiB")
	var idle []net.Conn
	for range 150 {
		if conn, err := net.Dial("tcp", p.Addr); err == nil {
			defer conn.Close()
			idle = append(idle, conn)
		}
	}
	p.Await(t, "there are too many")
	for _, conn := range idle {
		conn.Close()
	}
	get := func(header string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Addr+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X", header)
		r.Close = true
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	testkit.Eventually(t, "the server serves again", func() bool { return get("") == http.StatusOK })
	if got := get(strings.Repeat("x", 6<<10)); got != http.StatusOK {
		t.Errorf("a header of 6 KiB got %d", got)
	}
	if got := get(string(bytes.Repeat([]byte("x"), 12<<10))); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 12 KiB got %d, want 431", got)
	}
}
