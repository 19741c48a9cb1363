package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// TestServe_StopWithAClientThatDoesNotRead: a stop ends, and reports the aborted connections.
func TestServe_StopWithAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "echo", "--profile", "--shutdown-timeout", "1s")
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	asked := "GET /debug/pprof/goroutine?debug=2 HTTP/1.1\r\nHost: " + p.Addr + "\r\n\r\n"
	go conn.Write([]byte(strings.Repeat(asked, 50_000))) // until it is closed
	p.awaitStacks(t, "http.checkConnErrorWriter.Write", 1, "[IO wait")
	if code := p.Stop(t); code != cli.ExitFailure || !strings.Contains(p.Log(), "HTTP requests cut off") {
		t.Errorf("exit code %d, want %d and what was cut off", code, cli.ExitFailure)
	}
}

// awaitStacks waits until that many goroutines of the server, which has --profile, are in a function, and in a state.
func (p *program) awaitStacks(t *testing.T, function string, n int, state string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%d goroutines are in %s", n, function), func() bool {
		_, text := request(t, "GET", p.Addr, "/debug/pprof/goroutine?debug=2", "")
		found := 0
		for stack := range strings.SplitSeq(text, "\n\n") {
			if strings.Contains(stack, function) && strings.Contains(stack, state) {
				found++
			}
		}
		return found >= n
	})
}

// freezePostgres stops all processes of a data directory's PostgreSQL, like a hung disk, and returns their process ids.
func freezePostgres(t *testing.T, data string) (pids []int) {
	t.Helper()
	state, err := embedpg.Status(t.Context(), data)
	if err != nil || !state.Running {
		t.Fatalf("status %+v, %v", state, err)
	}
	if err := syscall.Kill(state.PID, syscall.SIGSTOP); err != nil { // the postmaster first: then it starts no more processes
		t.Fatal(err)
	}
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(state.PID)).Output()
	if err != nil {
		t.Fatal(err)
	}
	pids = []int{state.PID}
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
		syscall.Kill(pid, syscall.SIGSTOP) // the process may just have ended
	}
	return pids
}

// awaitEnded waits until none of the processes of a private PostgreSQL runs.
func awaitEnded(t *testing.T, pids []int) {
	t.Helper()
	testkit.Eventually(t, "PostgreSQL has ended", func() bool {
		for _, pid := range pids {
			name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
			if err == nil && bytes.Contains(name, []byte("postgres")) { // not gone, a zombie, or now another program's
				return false
			}
		}
		return true
	})
}

// TestServe_StopWithFrozenPostgreSQL: a stop ends within the shutdown timeout, and at a second signal at once. It leaves no process running, whatever
// PostgreSQL does.
func TestServe_StopWithFrozenPostgreSQL(t *testing.T) {
	notShort(t)
	t.Parallel()
	data := dataDir(t)
	p := serve(t, "--data-dir", data, "--shutdown-timeout", "4s")
	asked{"POST /v1/streams/s", "", 200, ""}.of(t, p.Addr)
	pids := freezePostgres(t, data)
	if code := p.Stop(t); code != cli.ExitFailure {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailure)
	}
	if !strings.Contains(p.Log(), embedpg.ErrNotClean.Error()) && !strings.Contains(p.Log(), "--shutdown-timeout 4s while") {
		t.Error("it does not say that PostgreSQL was not stopped cleanly")
	}
	awaitEnded(t, pids)

	p = serve(t, "--data-dir", data, "--shutdown-timeout", "1h")
	pids = freezePostgres(t, data)
	p.Cmd.Process.Signal(syscall.SIGTERM)
	p.Await(t, "msg=stopping")
	p.Cmd.Process.Signal(syscall.SIGTERM)
	p.Wait(t)
	if status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want by the signal", p.Cmd.ProcessState)
	}
	awaitEnded(t, pids)
}

// TestServe_StopAnswersWhatPostgreSQLDoesNot: requests that wait for a frozen PostgreSQL, which is not the server's own, are answered before their
// connections are closed. They may be stored; clients and the log say so.
func TestServe_StopAnswersWhatPostgreSQLDoesNot(t *testing.T) {
	notShort(t)
	t.Parallel()
	postgres := pgtest.Start(t)
	p := serve(t, "--database-url", postgres.URL(), "--stored-rooms", "lobby", "--profile", "--shutdown-timeout", "12s")
	asked{"POST /v1/streams/s", "", 200, ""}.of(t, p.Addr)
	asked{"POST /v1/queues/q", "", 200, ""}.of(t, p.Addr)
	waiting := []struct{ text, want string }{ // each on its own connection
		{`{"type":"publish","stream":"s","payload":"x","id":1}`, "outcome_unknown"},
		{`{"type":"enqueue","queue":"q","payload":"x","id":1}`, "outcome_unknown"},
		{`{"type":"append","events":[{"type":"e"}],"id":1}`, "outcome_unknown"},
		{`{"type":"commit","stream":"s","group":"g","position":1,"id":1}`, ""},
		{`{"type":"query","query":{"items":[{"types":["e"]}]},"id":1}`, "unavailable"},
		{`{"type":"chat","room":"lobby","text":"x","id":1}`, "outcome_unknown"},
	}
	conns := make([]*wire, len(waiting))
	for i, it := range waiting { // opens everything before PostgreSQL freezes
		conns[i] = wireDial(t, p.Addr)
		if strings.Contains(it.text, "lobby") {
			conns[i].ask(`{"type":"join","room":"lobby","id":2}`)
		}
		conns[i].ask("%s", it.text)
	}
	in, err := websocket.Dial(t.Context(), "ws://"+p.Addr+"/ws/ingest?ack=1", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Abort()
	in.SetReadDeadline(time.Now().Add(time.Minute))
	say(in, "first")
	if got, err := in.Read(); err != nil || len(got) != 1 || string(got[0].Payload) != "1" {
		t.Fatalf("%q, %v, want that 1 is committed", got, err)
	}
	pids := freezePostgres(t, postgres.DataDir())
	thaw := func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	t.Cleanup(thaw)
	for i, it := range waiting {
		say(conns[i].Conn, "%s", it.text)
		say(conns[i].Conn, `{"type":"ping"}`)
		if m, err := conns[i].next(); err != nil || m.Type != "pong" { // so the request was received
			t.Fatalf("%s: %+v, %v", it.text, m, err)
		}
	}
	say(in, "second")
	p.awaitMetric(t, "tidewire_ingest_received_messages_total 2")
	posted := make(chan string, 3)
	for path, want := range map[string]string{
		"POST /v1/streams/s/messages": "500 outcome_unknown", "POST /v1/queues/q/messages": "500 outcome_unknown", "GET /v1/streams/s/messages": "503 unavailable", // or stopping
	} {
		go func() {
			method, path, _ := strings.Cut(path, " ")
			status, text, err := tryRequest(context.Background(), method, p.Addr, path, map[string]string{"POST": `{"payload":"x"}`}[method])
			code, says, _ := strings.Cut(want, " ")
			if err == nil && strconv.Itoa(status) == code && (strings.Contains(text, says) || method == "GET" && strings.Contains(text, `"stopping"`)) {
				posted <- ""
				return
			}
			posted <- fmt.Sprintf("%s %s: %d %s, %v, want %s", method, path, status, text, err, want)
		}()
	}
	p.awaitStacks(t, "gateway.(*api).call(", cap(posted), "")
	stopped := make(chan int, 1)
	go func() { stopped <- p.Stop(t) }()
	for range cap(posted) {
		if wrong := <-posted; wrong != "" {
			t.Error(wrong)
		}
	}
	var closed *websocket.CloseError
	for i, it := range waiting {
		m, err := conns[i].next()
		if err != nil || m.Type != "error" || it.want != "" && m.Code != it.want {
			t.Errorf("%s: %+v, %v, want %s", it.text, m, err, it.want)
		}
		if _, err = conns[i].next(); !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
			t.Errorf("%s: the connection ended with %v, want 1001", it.text, err)
		}
	}
	if got, err := in.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusInternalError || !strings.Contains(closed.Reason, "may be stored") {
		t.Errorf("ingest got %q, %v, want that messages may be stored", got, err)
	}
	if code := <-stopped; code != cli.ExitFailure || !strings.Contains(p.Log(), `msg="messages given up: they may be stored" rows=1`) || strings.Contains(p.Log(), "could not be stored") {
		t.Errorf("exit code %d, want %d and that one message may be stored", code, cli.ExitFailure)
	}
	thaw()
	testkit.Eventually(t, "PostgreSQL has executed what the server had sent", func() bool {
		return rows(t, postgres.URL(), `SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`) == 0
	})
	if first, second := rows(t, postgres.URL(), countSQL+` WHERE payload = 'first'`), rows(t, postgres.URL(), countSQL+` WHERE payload = 'second'`); first != 1 || second > 1 {
		t.Errorf("the first message is stored %d times, the second %d times", first, second)
	}
}

// TestServe_StopGivesUpInTime stops a server that cannot write: it reports what was not stored, and ends.
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
	c, err := websocket.Dial(t.Context(), "ws://"+p.Addr+"/ws?ack=1", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	say(c, "x")
	testkit.Eventually(t, "the server waits for the lock", func() bool {
		return rows(t, db.URL, `SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
	})
	if code := p.Stop(t); code != cli.ExitFailure || !strings.Contains(p.Log(), "1 messages were received and given up, because PostgreSQL did not answer in time: they may be stored") {
		t.Errorf("exit code %d, want %d and what is lost", code, cli.ExitFailure)
	}
}
