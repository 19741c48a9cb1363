package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/presence/presencetest"
	"github.com/tidewire/tidewire/stream"
	"github.com/tidewire/tidewire/websocket"
)

// presenceReader follows the presence stream "who".
type presenceReader struct {
	presencetest.Picture
	pool  *pgxpool.Pool
	after int64
	read  []string
}

func readPresence(t *testing.T, url string) *presenceReader {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &presenceReader{pool: pool}
}

// await reads until exactly those are there, as Strings of entries.
func (r *presenceReader) await(t *testing.T, what string, want ...string) {
	t.Helper()
	slices.Sort(want)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if s, err := stream.Lookup(t.Context(), r.pool, "who"); err == nil {
			page, _ := s.Read(t.Context(), r.after, 1000)
			for _, m := range page {
				r.Apply(m.Key, m.Payload)
				r.after = m.Position
				r.read = append(r.read, string(m.Payload))
			}
			if len(page) == 0 && slices.Equal(r.Names(), want) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: there are %v, want %v, after\n%s", what, r.Names(), want, strings.Join(r.read, "\n"))
		}
	}
}

// is is the String of an entry.
func is(user, room string) string { return presencetest.Entry{User: user, Room: room}.String() }

// joinAs joins a room, and waits for the answer.
func joinAs(t *testing.T, c *websocket.Conn, user, room, more string) {
	t.Helper()
	say(c, `{"type":"join","id":1,"room":"%s","user":"%s"%s}`, room, user, more)
	for {
		messages, err := c.Read()
		for _, m := range messages {
			var a struct{ Type string }
			if json.Unmarshal(m.Payload, &a); a.Type == "ok" {
				return
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// members asks a server who is in a room there.
func members(t *testing.T, addr, room string) []string {
	t.Helper()
	_, text := request(t, "GET", addr, "/v1/rooms/"+room+"/members", "")
	var answer struct{ Members []string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(text, err)
	}
	return answer.Members
}

// TestPresenceStream_Servers: the stream says who is there while clients come, go and die, PostgreSQL crashes, and servers are killed and stopped.
func TestPresenceStream_Servers(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	flags := []string{"--database-url", db.URL(), "--presence-stream", "who", "--stored-rooms", "kept"}
	one, two := serve(t, flags...), serve(t, flags...)
	r := readPresence(t, db.URL())

	ann, bob, cid := wireDial(t, one.addr).Conn, chatDial(t, two.addr), wireDial(t, one.addr).Conn
	joinAs(t, ann, "ann", "lobby", "")
	joinAs(t, ann, "ann", "kept", `,"history":10`)
	joinAs(t, bob, "bob", "lobby", "")
	joinAs(t, cid, "cid", "lobby", "")
	joinAs(t, cid, "cid", "lobby", "") // again, which changes nothing
	joinAs(t, cid, "other", "attic", "")
	follower, err := http.Get("http://" + one.addr + "/v1/rooms/lobby/follow")
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Body.Close()
	r.await(t, "all are there", is("", ""), is("", ""), is("", ""), is("ann", "lobby"), is("ann", "kept"), is("bob", "lobby"), is("cid", "lobby"), is("other", "attic"))
	if got := members(t, one.addr, "lobby"); !slices.Equal(got, []string{"ann", "cid"}) {
		t.Errorf("the server says that %v are in the room", got)
	}
	say(cid, `{"type":"leave","room":"attic"}`)
	r.await(t, "one has left", is("", ""), is("", ""), is("", ""), is("ann", "lobby"), is("ann", "kept"), is("bob", "lobby"), is("cid", "lobby"))
	cid.Abort() // without a closing handshake
	r.await(t, "one has died", is("", ""), is("", ""), is("ann", "lobby"), is("ann", "kept"), is("bob", "lobby"))

	if err := db.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	dan := chatDial(t, two.addr)
	joinAs(t, dan, "dan", "lobby", "")
	say(bob, `{"type":"leave","room":"lobby"}`) // its last one, so the server closes the connection
	for err := error(nil); err == nil; {
		_, err = bob.Read()
	}
	bob.Abort()
	say(ann, `{"type":"leave","room":"lobby"}`)
	if err := db.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.await(t, "PostgreSQL is back", is("", ""), is("", ""), is("ann", "kept"), is("dan", "lobby"))

	one.cmd.Process.Kill()
	<-one.done
	three := serve(t, flags...)
	eve := wireDial(t, three.addr).Conn
	joinAs(t, eve, "eve", "lobby", "")
	r.await(t, "a server is killed", is("", ""), is("", ""), is("dan", "lobby"), is("eve", "lobby"))
	if code := two.stop(t); code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	r.await(t, "a server is stopped", is("", ""), is("eve", "lobby"))
	for _, fault := range r.Faults {
		t.Error(fault)
	}
	if got := r.Types; r.Lost > 0 || got["node_started"] != 3 || got["node_stopped"] != 1 || got["node_left"] != 1 {
		t.Errorf("%d lost, %v; want 3 started, 1 stopped, 1 left", r.Lost, got)
	}
	if n := rows(t, db.URL(), `SELECT count(*) FROM tidewire.presence_nodes`); n != 1 {
		t.Errorf("%d servers are listed, want 1", n)
	}
}

// TestPresenceStream_Cluster: the nodes have the names that the cluster has.
func TestPresenceStream_Cluster(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL, "--presence-stream", "who", "--cluster", "c", "--cluster-listen", "127.0.0.1:0")
	r := readPresence(t, db.URL)
	joinAs(t, wireDial(t, p.addr).Conn, "ann", "lobby", "")
	r.await(t, "one is there", is("", ""), is("ann", "lobby"))
	_, nodes := request(t, "GET", p.addr, "/v1/nodes", "")
	for entry := range r.Entries {
		if !strings.Contains(nodes, entry.Node) {
			t.Errorf("the node is %s; the server says %s", entry.Node, nodes)
		}
	}
}

// TestPresenceStream_StopWhilePostgreSQLIsAway: a stop ends in time, and says that events are not written. The next server tells that this one is gone.
func TestPresenceStream_StopWhilePostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	p := serve(t, "--database-url", db.URL(), "--presence-stream", "who", "--shutdown-timeout", "4s")
	r := readPresence(t, db.URL())
	joinAs(t, wireDial(t, p.addr).Conn, "ann", "lobby", "")
	r.await(t, "one is there", is("", ""), is("ann", "lobby"))
	if err := db.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	if code := p.stop(t); code != cli.ExitFailure || !strings.Contains(p.log(), "events for the presence stream could not be written") {
		t.Errorf("exit code %d, want %d and why", code, cli.ExitFailure)
	}
	if err := db.Restart(context.Background()); err != nil {
		t.Fatal(err)
	}
	serve(t, "--database-url", db.URL(), "--presence-stream", "who")
	r.await(t, "the next server says so")
	if r.Types["node_left"] != 1 || r.Types["node_stopped"] != 0 {
		t.Errorf("%v, want one node_left", r.Types)
	}
}

// TestPresenceStream_Refused: a name that cannot be the stream's ends the start, and the error says what to do.
func TestPresenceStream_Refused(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	p := serve(t, "--database-url", db.URL)
	request(t, "POST", p.addr, "/v1/queues/jobs", "")
	for says, args := range map[string][]string{
		"reserved for the server": {"--presence-stream", "tidewire.who"},
		"choose another name":     {"--presence-stream", strings.Repeat("x", 200)},
		"leave out --only":        {"--presence-stream", "who", "--only", "chat"},
		"another name":            {"--presence-stream", "jobs"},
	} {
		code, _, errOut := run(t, nil, append([]string{"serve", "--port", "0", "--duration", "1s", "--database-url", db.URL}, args...)...)
		if code == cli.ExitOK || !strings.Contains(errOut, says) {
			t.Errorf("%v: %d %s; want %q", args, code, errOut, says)
		}
	}
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
	reader := exec.CommandContext(t.Context(), python, "-c", strings.Replace(program, "http://localhost:8080", "http://"+p.addr, 1))
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
	ann := wireDial(t, p.addr).Conn
	joinAs(t, ann, "ann", "lobby", "")
	until("online: ann")
	joinAs(t, wireDial(t, p.addr).Conn, "bob", "lobby", "")
	until("online: ann, bob")
	ann.Abort()
	until("online: bob")
}
