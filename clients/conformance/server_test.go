package conformance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testbin"
)

// patience bounds everything that a test waits for.
const patience = time.Minute

// server is tidewire as a process, on a database of its own.
type server struct {
	*testbin.Process            // that runs
	t                *testing.T // with which all its processes end
	args             []string
	db               pgtest.DB
}

// startServer starts a server, which ends with the test.
func startServer(t *testing.T, db pgtest.DB, args ...string) *server {
	t.Helper()
	s := &server{t: t, db: db, args: append([]string{"serve", "--port", "0", "--database-url", db.URL, "--stored-rooms", "stored-*"}, args...)}
	s.start()
	return s
}

// start starts the process, and waits until it listens.
func (s *server) start() {
	s.t.Helper()
	program, err := testbin.Tidewire()
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = testbin.Serve(s.t, exec.Command(program, s.args...))
}

// want sends a request that has to succeed, and returns the answer.
func (s *server) want(t *testing.T, method, path string, body any) map[string]any {
	t.Helper()
	var in io.Reader
	if body != nil {
		text, _ := json.Marshal(body)
		in = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr+path, in)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if slices.ContainsFunc(s.args, func(arg string) bool { return strings.HasPrefix(arg, "--auth-") }) {
		r.Header.Set("Authorization", "Bearer "+token(t, "admin", time.Hour))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	got := map[string]any{}
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode/100 != 2 || len(text) > 0 && json.Unmarshal(text, &got) != nil {
		t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	return got
}

// stored returns the values of all messages of a stream.
func (s *server) stored(t *testing.T, stream string) (values []any, positions []float64) {
	t.Helper()
	for after := 0.0; ; {
		page := s.want(t, "GET", fmt.Sprintf("/v1/streams/%s/messages?limit=1000&after=%.0f", stream, after), nil)
		messages, _ := page["messages"].([]any)
		if len(messages) == 0 {
			return values, positions
		}
		for _, m := range messages {
			message := m.(map[string]any)
			var value any
			if json.Unmarshal([]byte(message["payload"].(string)), &value) != nil {
				value = message["payload"]
			}
			values, positions = append(values, value), append(positions, message["position"].(float64))
		}
		after = page["next"].(float64)
	}
}

var secret = []byte("a secret of at least 32 bytes, for tests")

// closedMode returns the flags of a server in closed mode.
func closedMode(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, secret, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--auth-leeway", "0s", "--auth-secret-file", path, "--rule", "admin: read,publish,commit,admin stream:*"}
}

// token returns a token of a role that ends after some time; a negative one has ended.
func token(t *testing.T, role string, life time.Duration) string {
	t.Helper()
	return authtest.Token(t, secret, "ann", life, map[string]any{"role": role})
}
