package cli_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/relay/natstest"
	"github.com/tidewire/tidewire/websocket"
)

// clusterMember is a client in the room "lobby" of one node.
type clusterMember struct {
	conn  *websocket.Conn
	name  string
	next  map[string]int // of each other member, the next chat that was not received
	heard map[string]bool
}

// enter returns a member of the room, after the server has answered its join.
func enter(t *testing.T, addr, name string) *clusterMember {
	t.Helper()
	m := &clusterMember{conn: chatDial(t, addr), name: name, next: make(map[string]int), heard: make(map[string]bool)}
	say(m.conn, `{"type":"join","room":"lobby","id":1}`)
	wantAnswer(t, m.conn, chatAnswer{Type: "ok", ID: 1})
	return m
}

// read reads what there is within some time.
func (m *clusterMember) read(t *testing.T, within time.Duration) {
	t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(within))
	messages, err := m.conn.Read()
	for _, message := range messages {
		var a chatAnswer
		var from string
		var n int
		json.Unmarshal(message.Payload, &a)
		if a.Text == "" {
			continue // a ping, or an answer
		}
		if _, err := fmt.Sscanf(a.Text, "%s %d", &from, &n); err != nil {
			t.Fatalf("%s got %s", m.name, message.Payload)
		}
		switch {
		case n == 0:
			m.heard[from] = true
		case n != m.next[from]+1 || from == m.name:
			t.Fatalf("%s got %q, want chat %d of it", m.name, a.Text, m.next[from]+1)
		default:
			m.next[from] = n
		}
	}
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
}

// converse lets all members hear each other, and then each get a number of chats of each other one.
func converse(t *testing.T, members ...*clusterMember) {
	t.Helper()
	const each = 100
	deadline := time.Now().Add(time.Minute)
	until := func(what string, step func(), done func(m, of *clusterMember) bool) {
		t.Helper()
		for waiting := true; waiting; {
			if time.Now().After(deadline) {
				t.Fatalf("members do not get all %s of the others", what)
			}
			step()
			waiting = false
			for _, m := range members {
				m.read(t, 5*time.Millisecond)
				for _, other := range members {
					waiting = waiting || m != other && !done(m, other)
				}
			}
		}
	}
	for _, m := range members {
		clear(m.heard)
		clear(m.next)
	}
	until("first chats", func() {
		for _, m := range members {
			say(m.conn, `{"type":"chat","room":"lobby","text":"%s 0"}`, m.name)
		}
	}, func(m, of *clusterMember) bool { return m.heard[of.name] })
	for n := range each {
		for _, m := range members {
			say(m.conn, `{"type":"chat","room":"lobby","text":"%s %d"}`, m.name, n+1)
		}
	}
	until("chats", func() {}, func(m, of *clusterMember) bool { return m.next[of.name] == each })
}

// TestCluster_RoomSpansNodes: a room spans three servers that find each other in the database, by a list, or at a NATS server. One is killed and
// another one starts: the rest goes on, and the room spans the new one.
func TestCluster_RoomSpansNodes(t *testing.T) {
	t.Parallel()
	fast := []string{"--cluster", "tides", "--rate-limit", "1e6", "--rate-burst", "1e6"}
	ways := map[string]func(t *testing.T) func(n int) []string{
		"database": func(t *testing.T) func(int) []string {
			db := migrated(t)
			return func(int) []string { return append(fast, "--database-url", db.URL, "--cluster-listen", "127.0.0.1:0") }
		},
		"list": func(t *testing.T) func(int) []string {
			secret := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(secret, []byte("sixteen letters and more\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			addresses := freeAddresses(t, 4)
			return func(n int) []string {
				return append(fast, "--only", "chat", "--max-message", "4KiB", "--cluster-secret-file", secret, "--cluster-listen", addresses[n],
					"--cluster-peers", strings.Join(append(append([]string{}, addresses[:n]...), addresses[n+1:]...), ","))
			}
		},
		"nats": func(t *testing.T) func(int) []string {
			url := natstest.Start(t, &server.Options{}).ClientURL()
			return func(int) []string { return append(fast, "--only", "chat", "--nats", url) }
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := way(t)
			var nodes []*program
			var members []*clusterMember
			begin := func(n int) {
				nodes = append(nodes, serve(t, flags(n)...))
				for k := range 2 {
					members = append(members, enter(t, nodes[n].addr, fmt.Sprintf("member%d.%d", n, k)))
				}
			}
			for n := range 3 {
				begin(n)
			}
			converse(t, members...)
			nodes[0].cmd.Process.Kill()
			members = members[2:]
			converse(t, members...)
			begin(3)
			converse(t, members...)
			if code := nodes[1].stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestCluster_SettleAnywhere: deliveries that were taken at one server are settled at others, each once. Those of a server that has been killed are lost, and
// come again.
func TestCluster_SettleAnywhere(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var nodes []*program
	for range 3 {
		nodes = append(nodes, serve(t, "--database-url", db.URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0"))
	}
	ask := func(node int, method, path, body string) (status int, text string) {
		t.Helper()
		return request(t, method, nodes[node].addr, path, body)
	}
	ask(0, "POST", "/v1/queues/jobs", "")
	ask(0, "POST", "/v1/queues/jobs/messages", `{"messages":[`+strings.Repeat(`{"payload":"x"},`, 39)+`{"payload":"x"}]}`)
	take := func(node, most int) (tokens []string) {
		t.Helper()
		for len(tokens) < most {
			_, text := ask(node, "POST", fmt.Sprintf("/v1/queues/jobs/receive?wait_ms=20000&max=%d", most-len(tokens)), "")
			var got struct{ Deliveries []struct{ Delivery string } }
			if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Deliveries) == 0 {
				t.Fatalf("received %s", text)
			}
			for _, d := range got.Deliveries {
				tokens = append(tokens, d.Delivery)
			}
		}
		return tokens
	}
	settle := func(node int, kind string, tokens ...string) string {
		t.Helper()
		quoted, _ := json.Marshal(tokens)
		lease := ""
		if kind == "extend" {
			lease = `,"lease_ms":60000`
		}
		status, text := ask(node, "POST", "/v1/queues/jobs/"+kind, `{"deliveries":`+string(quoted)+lease+`}`)
		return fmt.Sprint(status, " ", text)
	}
	first, second := take(0, 10), take(1, 10)
	if got := settle(2, "extend", append(first[:5:5], second[:5]...)...); !strings.HasPrefix(got, `200 {"count":10}`) {
		t.Errorf("extended at another server: %s", got)
	}
	if got := settle(2, "ack", append(first[:9:9], second...)...); !strings.HasPrefix(got, `200 {"count":19}`) {
		t.Errorf("acknowledged at another server: %s", got)
	}
	if got := settle(0, "ack", first[8], second[9]); !strings.HasPrefix(got, "409") || !strings.Contains(got, "lease_lost") {
		t.Errorf("acknowledged again: %s", got)
	}
	if got := settle(1, "nack", first[9]); !strings.HasPrefix(got, `200 {"count":1}`) {
		t.Errorf("rejected at another server: %s", got)
	}
	third := take(2, 20)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		status, text := ask(1, "GET", "/v1/nodes", "")
		if strings.Count(text, `"heard":true`) == 3 && strings.Count(text, `"address":"127.0.0.1:`) == 3 {
			break
		}
		if status != 200 || time.Now().After(deadline) {
			t.Fatalf("nodes: %d %s", status, text)
		}
	}
	nodes[2].cmd.Process.Kill()
	<-nodes[2].done
	if got := settle(0, "ack", third[:3]...); !strings.HasPrefix(got, "409") && !strings.HasPrefix(got, "503") {
		t.Errorf("acknowledged at another server, while the one that has given them out is gone: %s", got)
	}
	for _, token := range []string{"x", "x.y", ".", "0123456789abcdef.x", strings.Repeat("f", 16) + ".ABC-1"} {
		if got := settle(0, "ack", token); !strings.HasPrefix(got, "409") {
			t.Errorf("delivery %q: %s", token, got)
		}
	}
}

// freeAddresses returns addresses on loopback that nothing listens on. The system gives no such port to anybody who does not ask for it by number: Linux
// begins at 32768, others above.
func freeAddresses(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for len(addresses) < n {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// TestCluster_WrongSettings: each is refused at the start, with what to do.
func TestCluster_WrongSettings(t *testing.T) {
	t.Parallel()
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"--cluster-listen 127.0.0.1:0 --cluster-peers a:1":                                            "without --cluster NAME",
		"--nats nats://127.0.0.1:1":                                                                   "without --cluster NAME",
		"--cluster a.b":                                                                               "letters, digits, - and _",
		"--cluster a --only lanes":                                                                    "--only lanes has none",
		"--cluster a --only chat":                                                                     "--cluster-peers and --cluster-secret-file",
		"--cluster a --only chat --cluster-peers b:1":                                                 "needs --cluster-secret-file",
		"--cluster a --only chat --cluster-secret-file " + short:                                      "at least 16 characters",
		"--cluster a --only chat --cluster-secret-file /nowhere":                                      "/nowhere",
		"--cluster a --only chat --nats nats://127.0.0.1:1 --cluster-peers b:1":                       "leave out",
		"--cluster a --only chat --nats nats://127.0.0.1:1":                                           "connect to NATS",
		"--cluster a --only chat --cluster-listen 6222 --cluster-secret-file /x":                      "want HOST:PORT",
		"--cluster a --only chat --nats-creds /x --cluster-secret-file " + short:                      "is for --nats",
		"--cluster a --only chat --cluster-advertise b --cluster-secret-file " + longSecret(t):        "want HOST:PORT",
		"--cluster a --only chat --cluster-listen 192.0.2.1:0 --cluster-secret-file " + longSecret(t): "--cluster-listen",
	} {
		code, _, errOut := run(t, func(string) string { return "" }, append([]string{"serve", "--port", "0"}, strings.Fields(flags)...)...)
		wantCode := cli.ExitUsage
		if strings.Contains(flags, "192.0.2.1") {
			wantCode = cli.ExitListen
		}
		if code != wantCode || !strings.Contains(errOut, want) {
			t.Errorf("%s: exit code %d, and not %q in\n%s", flags, code, want, errOut)
		}
	}
}

// TestCluster_OtherSettings: servers whose --stored-rooms differ warn of each other.
func TestCluster_OtherSettings(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	flags := []string{"--database-url", db.URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0"}
	one := serve(t, append(flags, "--stored-rooms", "a,b")...)
	same, other := serve(t, append(flags, "--stored-rooms", "b,a")...), serve(t, flags...)
	const warning = "has other --stored-rooms"
	for _, p := range []*program{one, same, other} {
		for deadline := time.Now().Add(time.Minute); !strings.Contains(p.log(), warning); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("no warning of other settings")
			}
		}
	}
	if n := strings.Count(one.log(), warning); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
}

func longSecret(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("a secret with more than 16 letters"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestConfig_NATSSecrets: the settings in force are shown without the users, passwords and tokens of NATS servers.
func TestConfig_NATSSecrets(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"nats://ann:hunter2@h:4222", "nats://hunter2@h:4222", "nats://a:4222,tls://ann:hunter2@h:4222", "ann:hunter2@h:4222,nats://hunter2@i:4222"} {
		code, out, errOut := run(t, func(string) string { return "" }, "config", "--cluster", "c", "--nats", address)
		if code != cli.ExitOK || strings.Contains(out+errOut, "hunter2") || !strings.Contains(out, "h:4222") {
			t.Errorf("%s: exit code %d\n%s%s", address, code, out, errOut)
		}
	}
}
