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

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// TestServe_StopWithAClientThatDoesNotRead: a stop ends, and reports the aborted connections.
func TestServe_StopWithAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	p := serve(t, "--only", "echo", "--profile", "--shutdown-timeout", "2s")
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	asked := "GET /debug/pprof/goroutine?debug=2 HTTP/1.1\r\nHost: " + p.addr + "\r\n\r\n"
	go conn.Write([]byte(strings.Repeat(asked, 50_000))) // until it is closed
	p.awaitStacks(t, "http.checkConnErrorWriter.Write", 1, "[IO wait")
	if code := p.stop(t); code != cli.ExitFailure || !strings.Contains(p.log(), "HTTP requests cut off") {
		t.Errorf("exit code %d, want %d and what was cut off", code, cli.ExitFailure)
	}
}

// awaitStacks waits until that many goroutines of the server, which has --profile,
// are in a function, and optionally in a state.
func (p *program) awaitStacks(t *testing.T, function string, n int, state ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, text := request(t, "GET", p.addr, "/debug/pprof/goroutine?debug=2", "")
		found := 0
		for stack := range strings.SplitSeq(text, "\n\n") {
			if strings.Contains(stack, function) && (state == nil || strings.Contains(stack, state[0])) {
				found++
			}
		}
		if found >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines of the server are in %s %v, want %d", found, function, state, n)
		}
	}
}

// freezePostgres stops all processes of a data directory's PostgreSQL, like a
// hung disk, and returns their process ids.
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
	for deadline := time.Now().Add(time.Minute); len(pids) > 0; time.Sleep(5 * time.Millisecond) {
		name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pids[0]), "cmdline"))
		if err != nil || !bytes.Contains(name, []byte("postgres")) { // gone, a zombie, or now another program's
			pids = pids[1:]
		} else if time.Now().After(deadline) {
			t.Fatalf("processes %v of PostgreSQL still run: %s", pids, name)
		}
	}
}

// TestServe_StopWithFrozenPostgreSQL: a stop ends within the shutdown timeout,
// and leaves no process running, whatever PostgreSQL does.
func TestServe_StopWithFrozenPostgreSQL(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, "--data-dir", data, "--shutdown-timeout", "4s")
	request(t, "POST", p.addr, "/v1/streams/s", "")
	pids := freezePostgres(t, data)
	if code := p.stop(t); code != cli.ExitFailure {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailure)
	}
	if !strings.Contains(p.log(), embedpg.ErrNotClean.Error()) && !strings.Contains(p.log(), "--shutdown-timeout 4s while") {
		t.Error("it does not say that PostgreSQL was not stopped cleanly")
	}
	awaitEnded(t, pids)
}

// TestServe_StopWithFrozenForeignPostgreSQL: the given database is not the server's
// own, so the server ends without stopping it. Requests that it had sent may be
// stored; its clients and its log say so.
func TestServe_StopWithFrozenForeignPostgreSQL(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := serve(t, "--database-url", server.URL(), "--shutdown-timeout", "12s")
	request(t, "POST", p.addr, "/v1/streams/s", "")
	w := wireDial(t, p.addr)
	if m := w.ask(`{"type":"publish","stream":"s","payload":"first","id":1}`); m.Type != "ok" {
		t.Fatalf("%+v", m)
	}
	in, err := websocket.Dial(t.Context(), "ws://"+p.addr+"/ws/ingest?ack=1", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Abort()
	in.SetReadDeadline(time.Now().Add(time.Minute))
	say(in, "first")
	if got, err := in.Read(); err != nil || len(got) != 1 || string(got[0].Payload) != "1" {
		t.Fatalf("%q, %v, want that 1 is committed", got, err)
	}
	pids := freezePostgres(t, server.DataDir())
	thaw := func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	defer thaw()
	say(w.Conn, `{"type":"publish","stream":"s","payload":"second","id":2}`)
	say(w.Conn, `{"type":"ping"}`)
	if m, err := w.next(); err != nil || m.Type != "pong" { // so the request was received
		t.Fatalf("%+v, %v", m, err)
	}
	say(in, "second")
	p.awaitMetric(t, "tidewire_ingest_received_messages_total 2")
	stopped := make(chan int, 1)
	go func() { stopped <- p.stop(t) }()
	if m, err := w.next(); err != nil || m.Code != "outcome_unknown" {
		t.Errorf("the publish was answered %+v, %v", m, err)
	}
	var closed *websocket.CloseError
	if got, err := in.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusInternalError || !strings.Contains(closed.Reason, "may be stored") {
		t.Errorf("ingest got %q, %v, want that messages may be stored", got, err)
	}
	if code := <-stopped; code != cli.ExitFailure || !strings.Contains(p.log(), "1 messages were received and given up") || strings.Contains(p.log(), "could not be stored") {
		t.Errorf("exit code %d, want %d and that one message may be stored", code, cli.ExitFailure)
	}
	thaw()
	checkStoredOnce(t, server.URL())
}

// awaitMetric waits until /metrics has a line.
func (p *program) awaitMetric(t *testing.T, line string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		_, text := request(t, "GET", p.addr, "/metrics", "")
		if strings.Contains(text, "\n"+line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the metrics have no %q", line)
		}
	}
}

// checkStoredOnce waits until PostgreSQL has executed what an ended server had sent.
// In stream s and in the ingest table, the first message is stored once, and the
// second at most once.
func checkStoredOnce(t *testing.T, url string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background())
	count := func(sql string) (n int) {
		t.Helper()
		if err := db.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); count(`SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the sessions of the server that has ended are still there")
		}
	}
	for _, table := range []string{"tidewire.shared_message", "messages"} {
		first := count(`SELECT count(*) FROM ` + table + ` WHERE payload = 'first'`)
		second := count(`SELECT count(*) FROM ` + table + ` WHERE payload = 'second'`)
		if first != 1 || second > 1 {
			t.Errorf("%s has the first message %d times, the second %d times", table, first, second)
		}
	}
}

// TestServe_StopAnswersWhatPostgreSQLDoesNot: requests that wait for a frozen
// PostgreSQL when the server stops are answered before their connections are closed.
func TestServe_StopAnswersWhatPostgreSQLDoesNot(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := serve(t, "--database-url", server.URL(), "--stored-rooms", "lobby", "--profile", "--shutdown-timeout", "12s")
	request(t, "POST", p.addr, "/v1/streams/s", "")
	request(t, "POST", p.addr, "/v1/queues/q", "")
	asked := []struct{ text, want string }{ // by id, each on its own connection
		{`{"type":"publish","stream":"s","payload":"x","id":1}`, "outcome_unknown"},
		{`{"type":"enqueue","queue":"q","payload":"x","id":1}`, "outcome_unknown"},
		{`{"type":"append","events":[{"type":"e"}],"id":1}`, "outcome_unknown"},
		{`{"type":"commit","stream":"s","group":"g","position":1,"id":1}`, ""},
		{`{"type":"query","query":{"items":[{"types":["e"]}]},"id":1}`, "unavailable"},
		{`{"type":"chat","room":"lobby","text":"x","id":1}`, "outcome_unknown"},
	}
	conns := make([]*wire, len(asked))
	for i, it := range asked { // opens everything before PostgreSQL freezes
		conns[i] = wireDial(t, p.addr)
		if i == 5 {
			conns[i].ask(`{"type":"join","room":"lobby","id":2}`)
		}
		if m := conns[i].ask("%s", it.text); m.Type != "ok" {
			t.Fatalf("%s: %+v", it.text, m)
		}
	}
	pids := freezePostgres(t, server.DataDir())
	t.Cleanup(func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	for i, it := range asked {
		say(conns[i].Conn, "%s", it.text)
		say(conns[i].Conn, `{"type":"ping"}`)
		if m, err := conns[i].next(); err != nil || m.Type != "pong" { // so the request was received
			t.Fatalf("%s: %+v, %v", it.text, m, err)
		}
	}
	posted := make(chan string, 3)
	for path, want := range map[string]string{
		"POST /v1/streams/s/messages": "500 outcome_unknown", "POST /v1/queues/q/messages": "500 outcome_unknown", "GET /v1/streams/s/messages": "503 unavailable", // or stopping
	} {
		go func() {
			method, path, _ := strings.Cut(path, " ")
			body := map[string]string{"POST": `{"payload":"x"}`}[method]
			status, text, err := tryRequest(context.Background(), method, p.addr, path, body)
			code, says, _ := strings.Cut(want, " ")
			told := strings.Contains(text, says) || method == "GET" && strings.Contains(text, `"stopping"`)
			if err != nil || strconv.Itoa(status) != code || !told {
				posted <- fmt.Sprintf("%s %s: %d %s, %v, want %s", method, path, status, text, err, want)
				return
			}
			posted <- ""
		}()
	}
	p.awaitStacks(t, "gateway.(*api).call(", cap(posted))
	stopped := make(chan int, 1)
	go func() { stopped <- p.stop(t) }()
	for range cap(posted) {
		if wrong := <-posted; wrong != "" {
			t.Error(wrong)
		}
	}
	for i, it := range asked {
		m, err := conns[i].next()
		if err != nil || m.Type != "error" || it.want != "" && m.Code != it.want {
			t.Errorf("%s: %+v, %v, want %s", it.text, m, err, it.want)
		}
		_, err = conns[i].next()
		var closed *websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
			t.Errorf("%s: the connection ended with %v, want 1001", it.text, err)
		}
	}
	<-stopped
}

// TestServe_SecondSignal ends the server and its PostgreSQL at once.
func TestServe_SecondSignal(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	p := serve(t, "--data-dir", data, "--shutdown-timeout", "1h")
	pids := freezePostgres(t, data)
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.await(t, "msg=stopping")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait(t)
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want by the signal", p.cmd.ProcessState)
	}
	awaitEnded(t, pids)
}
