package authcost_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testbin"
	"github.com/tidewire/tidewire/websocket"
)

var rounds = flag.Int("rounds", 10, "how often each server is measured, in turn")

func TestMain(m *testing.M) { pgtest.Main(m) }

var secret = []byte("a secret of at least 32 bytes, for tests")

// tenRules are as many rules as a server may have; the last one grants.
var tenRules = []string{
	"a: read stream:*", "b: read stream:*", "user: read stream:news", "user: read stream:user/{sub}", "user: consume queue:q-{sub}", "user: query events:default#tenant:{claim.tenant}",
	"user: join room:dm/{sub}/*", "user: join,chat,presence room:public-*", "*: publish stream:orders-*", "user: join,chat room:load-**",
}

// server is a `tidewire serve` process.
type server struct {
	*testbin.Process
	proc  *process.Process
	token string
}

func start(b *testing.B, flags ...string) *server {
	b.Helper()
	program, err := testbin.Tidewire()
	if err != nil {
		b.Fatal(err)
	}
	db := pgtest.Open(b)
	p := testbin.Serve(b, exec.Command(program, append([]string{"serve", "--port", "0", "--database-url", db.URL, "--rate-limit", "1e6", "--rate-burst", "1e6"}, flags...)...))
	proc, err := process.NewProcess(int32(p.Cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	return &server{Process: p, proc: proc}
}

func (s *server) dial(b *testing.B) *websocket.Conn {
	b.Helper()
	cfg := websocket.Config{MaxUnsent: 64 << 20}
	if s.token != "" {
		cfg.Header = http.Header{"Authorization": {"Bearer " + s.token}}
	}
	c, err := websocket.Dial(b.Context(), "ws://"+s.Addr+"/ws", cfg)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// cpu is the CPU time of the process.
func (s *server) cpu(b *testing.B) time.Duration {
	b.Helper()
	t, err := s.proc.Times()
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration((t.User + t.System) * float64(time.Second))
}

// await reads until it has seen n messages that contain a text.
func await(b *testing.B, c *websocket.Conn, n int, text string) {
	b.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	for n > 0 {
		messages, err := c.Read()
		for _, m := range messages {
			if strings.Contains(string(m.Payload), text) {
				n--
			} else if strings.Contains(string(m.Payload), `"error"`) {
				b.Fatalf("%s", m.Payload)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// work is what is measured. It returns how many operations it has made.
var work = []struct {
	name string
	do   func(b *testing.B, s *server) int
}{
	{"connect", func(b *testing.B, s *server) int {
		const n = 1000
		for range n {
			s.dial(b).Abort()
		}
		return n
	}},
	{"publish", func(b *testing.B, s *server) int {
		const n, inFlight = 20_000, 64
		c := s.dial(b)
		defer c.Abort()
		for sent := 0; sent < n; sent += inFlight {
			for id := range inFlight {
				c.Queue(websocket.OpText, fmt.Appendf(nil, `{"type":"publish","id":%d,"stream":"orders-1","payload":"0123456789012345678901234567890123456789"}`, id))
			}
			c.Flush()
			await(b, c, inFlight, `"ok"`)
		}
		return n
	}},
	{"chat", func(b *testing.B, s *server) int {
		const members, n, inFlight = 50, 40_000, 32
		var all []*websocket.Conn
		for range members {
			c := s.dial(b)
			defer c.Abort()
			c.Queue(websocket.OpText, []byte(`{"type":"join","id":1,"room":"load-1"}`))
			c.Flush()
			await(b, c, 1, `"ok"`)
			all = append(all, c)
		}
		done := make(chan struct{}, members)
		for _, c := range all[1:] {
			go func() { await(b, c, n, `"chat"`); done <- struct{}{} }()
		}
		for sent := 0; sent < n; sent += inFlight {
			for range inFlight {
				all[0].Queue(websocket.OpText, []byte(`{"type":"chat","id":7,"room":"load-1","text":"0123456789012345678901234567890123456789"}`))
			}
			all[0].Flush()
			await(b, all[0], inFlight, `"ok"`)
		}
		for range members - 1 {
			<-done
		}
		return n * members
	}},
}

// BenchmarkAuthCost measures both servers in turn, and prints the median of the CPU time of an operation, and the ratio of the medians.
func BenchmarkAuthCost(b *testing.B) {
	file := filepath.Join(b.TempDir(), "secret")
	if err := os.WriteFile(file, secret, 0o600); err != nil {
		b.Fatal(err)
	}
	flags := []string{"--auth-secret-file", file, "--max-user-connections", "0", "--max-address-connections", "0", "--request-rate", "0", "--byte-rate", "0"}
	for _, r := range tenRules {
		flags = append(flags, "--rule", r)
	}
	open, closed := start(b), start(b, flags...)
	closed.token = authtest.Token(b, secret, "ann", time.Hour, map[string]any{"tenant": "t"})
	for _, s := range []*server{open, closed} {
		s.prepare(b)
	}
	for _, w := range work {
		b.Run(w.name, func(b *testing.B) {
			var costs [2][]float64
			for range *rounds {
				for i, s := range []*server{open, closed} {
					before := s.cpu(b)
					n := w.do(b, s)
					costs[i] = append(costs[i], float64((s.cpu(b)-before).Nanoseconds())/float64(n)/1e3)
				}
			}
			for i := range costs {
				slices.Sort(costs[i])
			}
			a, c := costs[0][*rounds/2], costs[1][*rounds/2]
			b.ReportMetric(a, "open_cpu_µs/op")
			b.ReportMetric(c, "closed_cpu_µs/op")
			b.ReportMetric(c/a, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// prepare makes the stream, with a right that the measured token does not have.
func (s *server) prepare(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr+"/v1/streams/orders-1", nil)
	if err != nil {
		b.Fatal(err)
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+authtest.Token(b, secret, "admin", time.Hour, map[string]any{"tidewire": map[string]any{"allow": []string{"admin stream:*"}}}))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status)
	}
}
