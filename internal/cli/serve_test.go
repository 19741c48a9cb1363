package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testbin"
	"github.com/tidewire/tidewire/websocket"
)

// run runs a command and returns its exit code and its output: as a process with an environment
// that has no settings, or, with getenv, inside this process.
func run(t *testing.T, getenv func(string) string, args ...string) (code int, out, errOut string) {
	t.Helper()
	if getenv == nil {
		return command(t, "", args...)
	}
	var stdout, stderr bytes.Buffer
	code = cli.Run(t.Context(), cli.Env{Args: args, Getenv: getenv, In: strings.NewReader(""), Out: &stdout, Err: &stderr, Program: tidewire(t)})
	return code, stdout.String(), stderr.String()
}

// command runs a command as a process with a standard input.
func command(t *testing.T, input string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), tidewire(t), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TIDEWIRE_") || strings.HasPrefix(v, "DATABASE_") || strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "XDG_")
	})
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// dataDir returns a new directory for a private PostgreSQL, which may run as
// another user. It does not use t.TempDir, since a socket's path must be short.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(pgtest.MemoryDir(), "tw-cli-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	t.Cleanup(func() { embedpg.StopDir(context.Background(), data) }) // that a killed server may have left
	return data
}

// program is a tidewire process.
type program struct {
	cmd  *exec.Cmd
	addr string
	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{}
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// tidewire returns the path of the program.
func tidewire(t testing.TB) string {
	t.Helper()
	path, err := testbin.Tidewire()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// serve starts `tidewire serve` on a free port and waits until it listens.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return start(t, exec.Command(tidewire(t), append([]string{"serve", "--port", "0"}, args...)...))
}

// launch starts a command that serves, and does not wait until it listens.
func launch(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, done: make(chan struct{})}
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "DATABASE_") || strings.HasPrefix(v, "PG")
	})
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%v said:\n%s", p.cmd.Args[1:], p.log())
		}
	})
	return p
}

// start starts a command that serves, and waits until it listens.
func start(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := launch(t, cmd)
	for p.addr == "" {
		if _, after, ok := strings.Cut(p.log(), "listening on "); ok {
			if address, _, ok := strings.Cut(after, "\n"); ok {
				_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "https://"))
				if err != nil {
					t.Fatal(err)
				}
				p.addr = "127.0.0.1:" + port
			}
		}
		select {
		case <-p.done:
			t.Fatalf("server ended with code %d", p.cmd.ProcessState.ExitCode())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return p
}

// await waits until the server has printed a text.
func (p *program) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.log(), text); time.Sleep(time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("server ended with code %d before it said %q", p.cmd.ProcessState.ExitCode(), text)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("server does not say %q", text)
		}
	}
}

// stop sends SIGTERM and returns the exit code.
func (p *program) stop(t *testing.T) int {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	return p.wait(t)
}

// wait returns the exit code.
func (p *program) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("server did not stop within a minute")
	}
	return p.cmd.ProcessState.ExitCode()
}

// pump sends messages and returns what it saw.
func pump(t *testing.T, cfg bench.PumpConfig) bench.PumpResult {
	t.Helper()
	if cfg.Payload == 0 {
		cfg.Payload = 32
	}
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

func rows(t *testing.T, url, sql string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const (
	countSQL    = `SELECT count(*) FROM messages`
	distinctSQL = `SELECT count(DISTINCT payload) FROM messages`
)

// TestServe_PrivatePostgreSQLKilled kills the private PostgreSQL under load:
// the server starts it again, and every message is acknowledged and stored
// once.
func TestServe_PrivatePostgreSQLKilled(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, "--only", "ingest", "--data-dir", data)
	state, err := embedpg.Status(t.Context(), data)
	if err != nil || !state.Running || state.OwnerPID != p.cmd.Process.Pid {
		t.Fatalf("status %+v, %v", state, err)
	}
	const clients, each = 5, 4000
	done := make(chan bench.PumpResult, 1)
	go func() {
		done <- pump(t, bench.PumpConfig{URL: "ws://" + p.addr + "/ws?ack=1", Clients: clients, Messages: each, Answer: bench.CountAnswer, Rate: 10_000})
	}()
	for rows(t, state.URL, countSQL) < 1000 {
		time.Sleep(5 * time.Millisecond)
	}
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	seen := <-done
	if seen.Answered != clients*each {
		t.Errorf("%d of %d messages acknowledged", seen.Answered, clients*each)
	}
	if state, err = embedpg.Status(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if n, distinct := rows(t, state.URL, countSQL), rows(t, state.URL, distinctSQL); n != clients*each || distinct != n {
		t.Errorf("%d rows, %d distinct, want %d", n, distinct, clients*each)
	}
	if code := p.stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if state, err = embedpg.Status(t.Context(), data); err != nil || state.Running {
		t.Errorf("after the stop: %+v, %v", state, err)
	}
}

// TestServe_KilledServerIsRecoveredFrom kills the server itself. The next
// server takes over its PostgreSQL, and the acknowledged messages are stored.
func TestServe_KilledServerIsRecoveredFrom(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	first := serve(t, "--data-dir", data)
	acked := pump(t, bench.PumpConfig{URL: "ws://" + first.addr + "/ws/ingest?ack=1", Clients: 3, Messages: 500, Answer: bench.CountAnswer}).Answered
	first.cmd.Process.Kill()
	<-first.done
	second := serve(t, "--data-dir", data)
	state, err := embedpg.Status(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	if n := rows(t, state.URL, countSQL); n != acked {
		t.Errorf("%d rows, %d were acknowledged", n, acked)
	}
	third, _, text := run(t, nil, "serve", "--port", "0", "--data-dir", data)
	if third != cli.ExitDataDir || !strings.Contains(text, fmt.Sprint(second.cmd.Process.Pid)) {
		t.Errorf("another serve on the same directory: exit code %d, %q, want %d and the owner's pid", third, text, cli.ExitDataDir)
	}
	if code := second.stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestServe_StopStoresEverythingReceived ends the server under load. Everything
// that its client had sent before it answered the Close frame is stored.
func TestServe_StopStoresEverythingReceived(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"naive", "buffered", "bulk", "copy", "auto"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Open(t)
			p := serve(t, "--only", "ingest", "-mode", mode, "--database-url", db.URL, "--shutdown-timeout", "50s") // one row a commit, on a slow machine
			c, err := websocket.Dial(t.Context(), "ws://"+p.addr+"/ws", websocket.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			var closed *websocket.CloseError
			sending := make(chan int)
			stop := make(chan struct{})
			go func() {
				sent := 0
				for ; ; sent++ {
					select {
					case <-stop:
						sending <- sent
						return
					default:
					}
					if c.Queue(websocket.OpText, fmt.Append(nil, sent)) != nil || c.Flush() != nil {
						sending <- sent
						return
					}
					time.Sleep(100 * time.Microsecond)
				}
			}()
			for rows(t, db.URL, countSQL) == 0 {
				time.Sleep(time.Millisecond)
			}
			exited := make(chan int, 1)
			go func() { exited <- p.stop(t) }()
			if _, err := c.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
				t.Errorf("got %v, want code 1001", err)
			}
			close(stop)
			sent := <-sending
			c.Close(websocket.StatusGoingAway, "")
			if code := <-exited; code != cli.ExitOK {
				t.Errorf("exit code %d", code)
			}
			if n, distinct := rows(t, db.URL, countSQL), rows(t, db.URL, distinctSQL); n != sent || distinct != sent {
				t.Errorf("%d rows, %d distinct, want %d", n, distinct, sent)
			}
			if !strings.Contains(p.log(), fmt.Sprintf("rows=%d", sent)) {
				t.Errorf("the log does not sum up %d rows", sent)
			}
		})
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
		pump(t, bench.PumpConfig{URL: "ws://" + p.addr + "/ws", Clients: 1, Messages: 10})
		if n := rows(t, db.URL, countSQL); n != c.want {
			t.Errorf("start %d: %d rows, want %d", i, n, c.want)
		}
		if code := p.stop(t); code != cli.ExitOK {
			t.Errorf("start %d: exit code %d", i, code)
		}
	}
}

// TestServe_ClosedTerminal: SIGHUP is a clean stop, unless nohup ignores it.
func TestServe_ClosedTerminal(t *testing.T) {
	t.Parallel()
	// Child processes ignore the signals that this process ignores, as under nohup,
	// but not those that it catches.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	data := dataDir(t)
	p := serve(t, "--only", "ingest", "--data-dir", data)
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.await(t, "msg=stopping")
	p.cmd.Process.Signal(syscall.SIGHUP)
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if state, err := embedpg.Status(t.Context(), data); err != nil || state.Running {
		t.Errorf("its PostgreSQL: %+v, %v", state, err)
	}

	nohup := start(t, exec.Command("sh", "-c", `trap '' HUP; exec "$0" "$@"`, tidewire(t), "serve", "--port", "0", "--only", "lanes"))
	nohup.cmd.Process.Signal(syscall.SIGHUP)
	for range 3 { // it still serves
		if status, text := request(t, "GET", nohup.addr, "/healthz", ""); status != 200 {
			t.Errorf("with SIGHUP ignored: %d %s", status, text)
		}
	}
	if code := nohup.stop(t); code != 0 || strings.Count(nohup.log(), "msg=stopping") != 1 {
		t.Errorf("with SIGHUP ignored: exit code %d", code)
	}
}

func TestServe_DurationHealthAndBothLoopbacks(t *testing.T) {
	t.Parallel()
	started := time.Now()
	p := serve(t, "--only", "echo", "--duration", "2")
	for _, path := range []string{"/health", "/healthz", "/readyz", "/metrics"} {
		resp, err := http.Get("http://" + p.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	_, port, _ := net.SplitHostPort(p.addr)
	if probe, err := net.Listen("tcp", "[::1]:0"); err == nil { // a machine with IPv6
		probe.Close()
		conn, err := net.Dial("tcp", "[::1]:"+port)
		if err != nil {
			t.Errorf("localhost is IPv4 only: %v", err)
		} else {
			conn.Close()
		}
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	if ran := time.Since(started); ran < 2*time.Second {
		t.Errorf("ran %v, want 2 s", ran)
	}
}

// TestServe_StopGivesUpInTime stops a server that cannot write: it reports what
// was not stored, and ends.
func TestServe_StopGivesUpInTime(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--only", "ingest", "--database-url", db.URL, "--shutdown-timeout", "1s")
	lock, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), `LOCK TABLE messages IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	c, err := websocket.Dial(t.Context(), "ws://"+p.addr+"/ws?ack=1", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if err := c.Queue(websocket.OpText, []byte("x")); err != nil {
		t.Fatal(err)
	}
	c.Flush()
	for waiting := false; !waiting; {
		err := db.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
	}
	if code := p.stop(t); code != cli.ExitFailure || !strings.Contains(p.log(), "1 messages were received and given up, because PostgreSQL did not answer in time: they may be stored") {
		t.Errorf("exit code %d, want %d and what is lost", code, cli.ExitFailure)
	}
}
