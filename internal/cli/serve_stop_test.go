package cli_test

import (
	"bytes"
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
)

// TestServe_StopWithAClientThatDoesNotRead: a stop ends, and says what it cut off.
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
	waits := func() bool {
		_, text := request(t, "GET", p.addr, "/debug/pprof/goroutine?debug=2", "")
		for stack := range strings.SplitSeq(text, "\n\n") {
			if strings.Contains(stack, "[IO wait") && strings.Contains(stack, "http.checkConnErrorWriter.Write") {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(time.Minute); !waits(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the server does not wait for its client to read")
		}
	}
	if code := p.stop(t); code != cli.ExitFailure || !strings.Contains(p.log(), "HTTP requests cut off") {
		t.Errorf("exit code %d, want %d and what was cut off", code, cli.ExitFailure)
	}
}

// freezePostgres stops all processes of a data directory's PostgreSQL, as a hung
// disk does, and returns their process ids.
func freezePostgres(t *testing.T, data string) (pids []int) {
	t.Helper()
	state, err := embedpg.Status(t.Context(), data)
	if err != nil || !state.Running {
		t.Fatalf("status %+v, %v", state, err)
	}
	if err := syscall.Kill(state.PID, syscall.SIGSTOP); err != nil { // first: it starts no more
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
		syscall.Kill(pid, syscall.SIGSTOP) // it may just have ended
	}
	return pids
}

// awaitEnded waits until none of the processes of a private PostgreSQL runs.
func awaitEnded(t *testing.T, pids []int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(pids) > 0; time.Sleep(5 * time.Millisecond) {
		name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pids[0]), "cmdline"))
		if err != nil || !bytes.Contains(name, []byte("postgres")) { // gone, a zombie, or another's by now
			pids = pids[1:]
		} else if time.Now().After(deadline) {
			t.Fatalf("processes %v of PostgreSQL still run: %s", pids, name)
		}
	}
}

// TestServe_StopWithFrozenPostgreSQL: a stop ends by the shutdown timeout, and
// leaves no process behind, whatever PostgreSQL does.
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

// TestServe_StopWithFrozenForeignPostgreSQL: the database that was given is
// another's, and the server ends alone, also with a message that it cannot store.
func TestServe_StopWithFrozenForeignPostgreSQL(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	p := serve(t, "--database-url", server.URL(), "--shutdown-timeout", "3s")
	request(t, "POST", p.addr, "/v1/streams/s", "")
	w := wireDial(t, p.addr)
	w.ask(`{"type":"publish","stream":"s","payload":"first","id":1}`)
	pids := freezePostgres(t, server.DataDir())
	defer func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	say(w.Conn, `{"type":"publish","stream":"s","payload":"second","id":2}`)
	if code := p.stop(t); code != cli.ExitFailure && code != cli.ExitOK { // what had arrived by then was stored, or given up
		t.Errorf("exit code %d", code)
	}
}

// TestServe_SecondSignal ends the server at once, and with it its PostgreSQL.
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
