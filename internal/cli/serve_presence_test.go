package cli_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/presence/presencetest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
	"github.com/tidewire/tidewire/websocket"
)

// presenceReader follows the presence stream "who".
type presenceReader struct {
	presencetest.Picture
	t     *testing.T
	pool  *pgxpool.Pool
	after int64
}

// await reads until exactly those are there, each a user and a room. Each connection is there without both.
func (r *presenceReader) await(what string, want ...string) {
	r.t.Helper()
	var entries []string
	for _, one := range want {
		user, room, _ := strings.Cut(one, " ")
		entries = append(entries, presencetest.Entry{User: user, Room: room}.String())
	}
	slices.Sort(entries)
	testkit.Eventually(r.t, what, func() bool {
		s, err := stream.Lookup(r.t.Context(), r.pool, "who")
		if err != nil {
			return false
		}
		page, _ := s.Read(r.t.Context(), r.after, 1000)
		for _, m := range page {
			r.Apply(m.Key, m.Payload)
			r.after = m.Position
		}
		return len(page) == 0 && slices.Equal(r.Names(), entries)
	})
}

// joinAs joins a room, and waits for the answer.
func joinAs(t *testing.T, addr, user, room string) *wire {
	t.Helper()
	w := wireDial(t, addr)
	w.ask(`{"type":"join","id":1,"room":"%s","user":"%s"}`, room, user)
	return w
}

// TestPresenceStream: the stream says who is there on all servers while clients come, go and die, and servers are killed, and stopped while PostgreSQL is
// away: then the next server says that this one is gone.
func TestPresenceStream(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := pgtest.Start(t)
	flags := []string{"--database-url", db.URL(), "--presence-stream", "who", "--stored-rooms", "kept", "--shutdown-timeout", "4s", "--cluster", "c", "--cluster-listen", "127.0.0.1:0"}
	one, two := serve(t, flags...), serve(t, flags...)
	pool, err := pgxpool.New(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := &presenceReader{t: t, pool: pool}

	ann, bob, cid := joinAs(t, one.Addr, "ann", "lobby"), joinAs(t, two.Addr, "bob", "lobby"), joinAs(t, one.Addr, "cid", "lobby")
	ann.ask(`{"type":"join","id":2,"room":"kept","user":"ann","history":10}`)
	cid.ask(`{"type":"join","id":2,"room":"lobby","user":"cid"}`) // again, which changes nothing
	r.await("all are there", "", "", "", "ann lobby", "ann kept", "bob lobby", "cid lobby")
	_, nodes := request(t, "GET", one.Addr, "/v1/nodes", "")
	for entry := range r.Entries {
		if !strings.Contains(nodes, entry.Node) {
			t.Errorf("the node is %s; the server says %s", entry.Node, nodes)
		}
	}
	ann.ask(`{"type":"leave","room":"lobby","id":3}`)
	cid.Abort() // without a closing handshake
	r.await("one has left, one has died", "", "", "ann kept", "bob lobby")

	two.Cmd.Process.Kill()
	if err := db.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	bob.Abort()
	if code := one.Stop(t); code != cli.ExitFailure || !strings.Contains(one.Log(), "events for the presence stream could not be written") {
		t.Errorf("exit code %d, want %d and why", code, cli.ExitFailure)
	}
	if err := db.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	three := serve(t, flags...)
	eve := joinAs(t, three.Addr, "eve", "lobby")
	go func() {
		for err := error(nil); err == nil; {
			_, err = eve.Read()
		}
		eve.Close(websocket.StatusGoingAway, "")
	}()
	r.await("both servers are gone", "", "eve lobby")
	if code := three.Stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	r.await("a server is stopped")
	for _, fault := range r.Faults {
		t.Error(fault)
	}
	if got := r.Types; got["node_started"] != 3 || got["node_stopped"] != 1 || got["node_left"] != 2 {
		t.Errorf("%v; want 3 started, 1 stopped, 2 left", r.Types)
	}
	refused(t, []refusal{
		{"serve --port 0 --presence-stream tidewire.who --database-url " + db.URL(), cli.ExitUsage, "reserved for the server"},
		{"serve --port 0 --presence-stream " + strings.Repeat("x", 200) + " --database-url " + db.URL(), cli.ExitUsage, "choose another name"},
	})
}

// TestPresenceStream_Document: the program of docs/how-to/presence-events.md prints who is online.
func TestPresenceStream_Document(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	text, err := os.ReadFile("../../docs/how-to/presence-events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```python\n")
	program, _, _ = strings.Cut(program, "```")
	p := serve(t, "--database-url", migrated(t).URL, "--presence-stream", "presence")
	reader := exec.CommandContext(t.Context(), python, "-c", strings.Replace(program, "http://localhost:8080", "http://"+p.Addr, 1))
	reader.Stderr = os.Stderr
	out, err := reader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	defer reader.Wait()
	defer reader.Process.Kill()
	lines := bufio.NewScanner(out)
	until := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("it does not print %q", want)
	}
	ann := joinAs(t, p.Addr, "ann", "lobby")
	until("online: ann")
	joinAs(t, p.Addr, "bob", "lobby")
	until("online: ann, bob")
	ann.Abort()
	until("online: bob")
}
