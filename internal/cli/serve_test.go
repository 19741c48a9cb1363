package cli_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testbin"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// pump sends messages and returns what it saw.
func pump(t *testing.T, cfg bench.PumpConfig) bench.PumpResult {
	t.Helper()
	cfg.Payload = 32
	p, err := bench.NewPump(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

const (
	countSQL    = `SELECT count(*) FROM messages`
	distinctSQL = `SELECT count(DISTINCT payload) FROM messages`
)

// TestServe_PrivatePostgreSQL: a server starts its PostgreSQL again when that is killed under load, and every message is acknowledged and stored once.
// When the server itself is killed, the next one takes over; no other can use the directory. A closed terminal is a clean stop, of both.
func TestServe_PrivatePostgreSQL(t *testing.T) {
	notShort(t)
	t.Parallel()
	// Child processes ignore the signals that this process ignores, as under nohup, but not those that it catches.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	data := dataDir(t)
	first := serve(t, "--only", "ingest", "--data-dir", data)
	state, err := embedpg.Status(t.Context(), data)
	if err != nil || !state.Running || state.OwnerPID != first.Cmd.Process.Pid {
		t.Fatalf("status %+v, %v", state, err)
	}
	const clients, each = 5, 1000
	done := make(chan bench.PumpResult, 1)
	go func() {
		done <- pump(t, bench.PumpConfig{URL: "ws://" + first.Addr + "/ws?ack=1", Clients: clients, Messages: each, Answer: bench.CountAnswer, Rate: 2500})
	}()
	testkit.Eventually(t, "messages are stored", func() bool { return rows(t, state.URL, countSQL) > 500 })
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if seen := <-done; seen.Answered != clients*each {
		t.Errorf("%d of %d messages acknowledged", seen.Answered, clients*each)
	}
	first.Kill()

	second := serve(t, "--only", "ingest", "--data-dir", data)
	if state, err = embedpg.Status(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if n, distinct := rows(t, state.URL, countSQL), rows(t, state.URL, distinctSQL); n != clients*each || distinct != n {
		t.Errorf("%d rows, %d distinct, want %d", n, distinct, clients*each)
	}
	refused(t, []refusal{{"serve --port 0 --data-dir " + data, cli.ExitDataDir, fmt.Sprint(second.Cmd.Process.Pid)}, {"db stop --data-dir " + data, cli.ExitDataDir, fmt.Sprint(second.Cmd.Process.Pid)}})
	second.Cmd.Process.Signal(syscall.SIGHUP)
	second.Await(t, "msg=stopping")
	second.Cmd.Process.Signal(syscall.SIGHUP)
	if code := second.Wait(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if state, err = embedpg.Status(t.Context(), data); err != nil || state.Running {
		t.Errorf("after the stop: %+v, %v", state, err)
	}
}

// TestServe_Nohup: a server for which SIGHUP is ignored serves on.
func TestServe_Nohup(t *testing.T) {
	t.Parallel()
	p := testbin.Serve(t, exec.Command("sh", "-c", `trap '' HUP; exec "$0" "$@"`, tidewire(t), "serve", "--port", "0", "--only", "lanes"))
	p.Cmd.Process.Signal(syscall.SIGHUP)
	for range 3 {
		if status, text := request(t, "GET", p.Addr, "/healthz", ""); status != 200 {
			t.Errorf("%d %s", status, text)
		}
	}
	if code := p.Stop(t); code != 0 || strings.Count(p.Log(), "msg=stopping") != 1 {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_StopStoresEverythingReceived ends the server under load. Everything that its client had sent before it answered the Close frame is stored,
// and so is what another one had sent before its connection ended in the middle of a frame.
func TestServe_StopStoresEverythingReceived(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "naive", "buffered", "bulk", "copy"} {
		t.Run(mode, func(t *testing.T) {
			if mode != "auto" {
				testkit.Long(t)
			}
			t.Parallel()
			db := pgtest.Open(t)
			p := serve(t, "--only", "ingest", "-mode", mode, "--database-url", db.URL, "--shutdown-timeout", "50s") // one row a commit, on a slow machine
			const whole = 50
			cutMidFrame(t, p.Addr, whole)
			c, err := websocket.Dial(t.Context(), "ws://"+p.Addr+"/ws", websocket.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			var stop atomic.Bool
			sending := make(chan int)
			go func() {
				sent := 0
				for ; !stop.Load() && c.Queue(websocket.OpText, fmt.Append(nil, sent)) == nil && c.Flush() == nil; sent++ {
					time.Sleep(100 * time.Microsecond) // pace: a client that never fills the server's memory
				}
				sending <- sent
			}()
			testkit.Eventually(t, "messages of both are stored", func() bool { return rows(t, db.URL, countSQL) > whole })
			exited := make(chan int, 1)
			go func() { exited <- p.Stop(t) }()
			var closed *websocket.CloseError
			if _, err := c.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
				t.Errorf("got %v, want code 1001", err)
			}
			stop.Store(true)
			sent := <-sending + whole
			c.Close(websocket.StatusGoingAway, "")
			if code := <-exited; code != cli.ExitOK {
				t.Errorf("exit code %d", code)
			}
			if n, distinct := rows(t, db.URL, countSQL), rows(t, db.URL, distinctSQL); n != sent || distinct != sent {
				t.Errorf("%d rows, %d distinct, want %d", n, distinct, sent)
			}
			if !strings.Contains(p.Log(), fmt.Sprintf("rows=%d", sent)) {
				t.Errorf("the log does not sum up %d rows", sent)
			}
		})
	}
}

// cutMidFrame sends whole messages, and ends the connection in the middle of the next frame, without a handshake.
func cutMidFrame(t *testing.T, addr string, whole int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := websocket.ClientHandshake(conn, &url.URL{Scheme: "ws", Host: addr, Path: "/ws"}); err != nil {
		t.Fatal(err)
	}
	var frames []byte
	for i := range whole + 1 {
		frames = websocket.AppendMaskedFrame(frames, websocket.OpBinary, [4]byte{9, 8, 7, 6}, fmt.Appendf(nil, "message %d", i))
	}
	if _, err := conn.Write(frames[:len(frames)-3]); err != nil {
		t.Fatal(err)
	}
}

func TestServe_RecreateOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	for i, c := range []struct {
		args []string
		want int
	}{
		{nil, 10},
		{nil, 20},
		{[]string{"--recreate"}, 10},
	} {
		p := serve(t, append([]string{"--only", "ingest", "--database-url", db.URL}, c.args...)...)
		pump(t, bench.PumpConfig{URL: "ws://" + p.Addr + "/ws?ack=1", Clients: 1, Messages: 10, Answer: bench.CountAnswer})
		if n := rows(t, db.URL, countSQL); n != c.want {
			t.Errorf("start %d: %d rows, want %d", i, n, c.want)
		}
		if code := p.Stop(t); code != cli.ExitOK {
			t.Errorf("start %d: exit code %d", i, code)
		}
	}
}

// TestServe_Duration: the server ends by itself, and not before.
func TestServe_Duration(t *testing.T) {
	notShort(t)
	t.Parallel()
	started := time.Now()
	p := serve(t, "--only", "echo", "--duration", "2")
	<-p.Done
	if code := p.Cmd.ProcessState.ExitCode(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if ran := time.Since(started); ran < 2*time.Second {
		t.Errorf("ran %v, want 2 s", ran)
	}
}

func TestServe_HealthAndBothLoopbacks(t *testing.T) {
	notShort(t)
	t.Parallel()
	p := serve(t, "--only", "echo", "--idle-timeout", "1s", "--allow-origin", "https://app.example.com", "--allowed-host", "rt.example.com")
	for _, path := range []string{"/health", "/healthz", "/readyz", "/metrics"} {
		asked{"GET " + path, "", 200, ""}.of(t, p.Addr)
	}
	asked{"GET /console/", "", 404, ""}.of(t, p.Addr) // of one endpoint
	for host, status := range map[string]int{"evil.example": 421, "rt.example.com": 200, "localhost": 200, "x.localhost:99": 200} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+p.Addr+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("/metrics under the name %s: %d, want %d", host, resp.StatusCode, status)
		}
	}
	for origin, allowed := range map[string]bool{"https://app.example.com": true, "https://evil.example": false} {
		c, err := websocket.Dial(t.Context(), "ws://"+p.Addr+"/ws", websocket.Config{Header: http.Header{"Origin": {origin}}})
		if (err == nil) != allowed {
			t.Errorf("a page of %s: %v", origin, err)
		}
		if err == nil {
			c.Abort()
		}
	}
	idle, err := net.Dial("tcp", p.Addr) // a connection that stays open after a request is closed in time
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	fmt.Fprintf(idle, "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n", p.Addr)
	if text, err := io.ReadAll(idle); err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 200") {
		t.Errorf("%q, %v", text, err)
	}
	select {
	case <-p.Done:
		t.Error("it was closed when the server ended")
	default:
	}
	http.DefaultClient.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(p.Addr)
	if probe, err := net.Listen("tcp", "[::1]:0"); err == nil { // a machine with IPv6
		probe.Close()
		conn, err := net.Dial("tcp", "[::1]:"+port)
		if err != nil {
			t.Errorf("localhost is IPv4 only: %v", err)
		} else {
			conn.Close()
		}
	}
}
