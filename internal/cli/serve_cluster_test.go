package cli_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/internal/relay/natstest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// guest is a client in the room "lobby" of one server, which watches who is there.
type guest struct {
	*chatReader
	name  string
	there map[string]bool // users
	count int             // connections
	heard map[string]int  // by user: the number of its last chat
}

// enter joins the room.
func enter(t *testing.T, addr, name string) *guest {
	t.Helper()
	g := &guest{chatReader: &chatReader{t: t, conn: chatDial(t, addr)}, name: name, there: make(map[string]bool), heard: make(map[string]int)}
	say(g.conn, `{"type":"join","room":"lobby","user":"%s","presence":true,"id":1}`, name)
	return g
}

// until takes messages until something holds. Chats of a user come in order, from the first one that comes.
func (g *guest) until(what string, holds func() bool) {
	g.t.Helper()
	for !holds() {
		var m struct {
			Type, User, Text      string
			Count                 int
			Members, Joined, Left []string
		}
		if err := json.Unmarshal([]byte(g.next()), &m); err != nil {
			g.t.Fatal(err)
		}
		switch m.Type {
		case "presence":
			if m.Members != nil {
				clear(g.there)
			}
			for _, user := range append(m.Members, m.Joined...) {
				g.there[user] = true
			}
			for _, user := range m.Left {
				delete(g.there, user)
			}
			g.count = m.Count
		case "chat":
			var from string
			var n int
			if _, err := fmt.Sscan(m.Text, &from, &n); err != nil || from == g.name || g.heard[from] != 0 && n != g.heard[from]+1 {
				g.t.Fatalf("%s waits for %s, and got %q after %d", g.name, what, m.Text, g.heard[from])
			}
			g.heard[from] = n
		}
	}
}

// sees waits until the guest knows of these users, and that many connections.
func (g *guest) sees(count int, users ...string) {
	g.t.Helper()
	slices.Sort(users)
	g.until(fmt.Sprint(users), func() bool { return g.count == count && slices.Equal(slices.Sorted(maps.Keys(g.there)), users) })
}

// converse has all guests, who know of each other, get chats of each other.
func converse(t *testing.T, guests ...*guest) {
	t.Helper()
	const each = 20
	for _, g := range guests {
		clear(g.heard)
		for n := range each {
			say(g.conn, `{"type":"chat","room":"lobby","text":"%s %d"}`, g.name, n+1)
		}
	}
	for _, g := range guests {
		g.until("all chats", func() bool {
			for _, other := range guests {
				if other != g && g.heard[other.name] != each {
					return false
				}
			}
			return true
		})
	}
}

// TestCluster: a room spans three servers that find each other in the database, and a stored room has one order on them. Who watches it learns who
// comes and leaves on all servers. When a server is killed, the rest goes on; deliveries that it has given out are lost, others are settled anywhere.
func TestCluster(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	flags := []string{"--database-url", db.URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0", "--rate-limit", "1e6", "--rate-burst", "1e6", "--profile"}
	nodes := []*program{serve(t, append(flags, "--stored-rooms", "a,b")...), serve(t, append(flags, "--stored-rooms", "b,a")...), serve(t, flags...)}
	ann, bob, eve := enter(t, nodes[0].Addr, "ann"), enter(t, nodes[1].Addr, "bob"), enter(t, nodes[2].Addr, "eve")
	all := []*guest{ann, bob, eve}
	for _, g := range all {
		g.sees(3, "ann", "bob", "eve")
	}
	converse(t, all...)
	also, unnamed := enter(t, nodes[1].Addr, "ann"), enter(t, nodes[2].Addr, "")
	eve.sees(5, "ann", "bob", "eve")
	also.conn.Abort()
	unnamed.conn.Abort()
	for _, g := range all {
		g.sees(3, "ann", "bob", "eve")
	}
	for _, p := range nodes {
		p.Await(t, "has other --stored-rooms")
	}
	testkit.Eventually(t, "the servers know each other", func() bool {
		_, text := request(t, "GET", nodes[1].Addr, "/v1/nodes", "")
		return strings.Count(text, `"heard":true`) == 3 && strings.Count(text, `"address":"127.0.0.1:`) == 3
	})

	asked{"POST /v1/queues/jobs", ``, 200, ``}.of(t, nodes[0].Addr)
	asked{"POST /v1/queues/jobs/messages", `{"messages":[` + strings.Repeat(`{"payload":"x"},`, 19) + `{"payload":"x"}]}`, 200, ``}.of(t, nodes[0].Addr)
	take := func(node, most int) (tokens []string) {
		t.Helper()
		for len(tokens) < most {
			var got struct{ Deliveries []struct{ Delivery string } }
			text := asked{fmt.Sprintf("POST /v1/queues/jobs/receive?wait_ms=20000&max=%d", most-len(tokens)), ``, 200, ``}.of(t, nodes[node].Addr)
			if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Deliveries) == 0 {
				t.Fatalf("received %s", text)
			}
			for _, d := range got.Deliveries {
				tokens = append(tokens, d.Delivery)
			}
		}
		return tokens
	}
	settle := func(node int, kind string, status int, has string, tokens ...string) {
		t.Helper()
		quoted, _ := json.Marshal(tokens)
		lease := map[string]string{"extend": `,"lease_ms":60000`}[kind]
		asked{"POST /v1/queues/jobs/" + kind, `{"deliveries":` + string(quoted) + lease + `}`, status, has}.of(t, nodes[node].Addr)
	}
	first, second := take(0, 5), take(1, 5)
	settle(2, "extend", 200, `{"count":7}`, append(first[:2:2], second...)...)
	settle(2, "ack", 200, `{"count":9}`, append(first[:4:4], second...)...)
	settle(0, "ack", 409, "lease_lost", first[3], second[4])
	settle(1, "nack", 200, `{"count":1}`, first[4])
	for _, token := range []string{"x", "x.y", ".", "0123456789abcdef.x", strings.Repeat("f", 16) + ".ABC-1"} {
		settle(0, "ack", 409, "", token)
	}
	third := take(2, 10)

	nodes[2].Kill()
	// What another server has dropped and made again can be used at once, and the servers keep nothing of it.
	for _, kind := range []string{"streams", "queues"} {
		for range 3 {
			asked{"POST /v1/" + kind + "/again", ``, 200, ``}.of(t, nodes[1].Addr)
			asked{"POST /v1/" + kind + "/again/messages", `{"payload":"before"}`, 200, ``}.of(t, nodes[1].Addr)
			asked{"DELETE /v1/" + kind + "/again", ``, 200, ``}.of(t, nodes[0].Addr)
		}
	}
	quoted, _ := json.Marshal(third[:3])
	if status, text := request(t, "POST", nodes[0].Addr, "/v1/queues/jobs/ack", `{"deliveries":`+string(quoted)+`}`); status != 409 && status != 503 {
		t.Errorf("acknowledged at another server, while the one that has given them out is gone: %d %s", status, text)
	}
	for _, g := range all[:2] {
		g.sees(2, "ann", "bob")
	}
	converse(t, ann, bob)
	dora := enter(t, serve(t, flags...).Addr, "dora")
	for _, g := range []*guest{ann, bob, dora} {
		g.sees(3, "ann", "bob", "dora")
	}
	converse(t, ann, bob, dora)
	consumer := wireDial(t, nodes[1].Addr)
	consumer.ask(`{"type":"consume","queue":"jobs","credits":20,"id":1}`)
	asked{"DELETE /v1/queues/jobs", ``, 200, ``}.of(t, nodes[0].Addr)
	for m, err := consumer.next(); m.Code != "queue_gone"; m, err = consumer.next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "no goroutine serves a queue", func() bool {
		_, profile := request(t, "GET", nodes[1].Addr, "/debug/pprof/goroutine?debug=1", "")
		return !strings.Contains(profile, "tidewire/queue.")
	})
	if code := nodes[1].Stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestCluster_WithoutDatabase: servers find each other by a list, with certificates of an operator, or at a NATS server that wants TLS.
func TestCluster_WithoutDatabase(t *testing.T) {
	t.Parallel()
	made := madeCert(t, time.Hour)
	flags := []string{"--only", "chat", "--cluster", "tides", "--rate-limit", "1e6", "--rate-burst", "1e6"}
	pair, err := tls.LoadX509KeyPair(made.CertFile, made.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	nats := natstest.Start(t, &server.Options{TLS: true, TLSTimeout: 10, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}})
	listed := append(flags, strings.Fields("--cluster-listen 127.0.0.1:0 --cluster-secret-file "+secretFile(t, serverSecret)+
		" --cluster-tls-cert-file "+made.CertFile+" --cluster-tls-key-file "+made.KeyFile+" --cluster-tls-ca-file "+made.CertFile)...)
	first := serve(t, listed...)
	for name, both := range map[string][2]*program{
		"list": {first, serve(t, append(listed, "--cluster-peers", first.clusterAddress(t))...)},
		"NATS": {
			serve(t, append(flags, "--nats", "tls://"+nats.Addr().String(), "--nats-ca-file", made.CertFile)...),
			serve(t, append(flags, "--nats", "tls://"+nats.Addr().String(), "--nats-ca-file", made.CertFile)...),
		},
	} {
		t.Log(name)
		ann, bob := enter(t, both[0].Addr, "ann"), enter(t, both[1].Addr, "bob")
		ann.sees(2, "ann", "bob")
		bob.sees(2, "ann", "bob")
		converse(t, ann, bob)
	}
	// With another secret, servers refuse each other, and write what to do.
	plain := append(flags, "--cluster-listen", "127.0.0.1:0", "--cluster-secret-file")
	one := serve(t, append(plain, secretFile(t, []byte("a secret of the first server")))...)
	two := serve(t, append(plain, secretFile(t, []byte("a secret of the second server")), "--cluster-peers", one.clusterAddress(t))...)
	for _, p := range []*program{one, two} {
		p.Await(t, "the same database or --cluster-secret-file")
	}
}

// clusterAddress returns the address for the other servers, which the log has.
func (p *program) clusterAddress(t *testing.T) string {
	t.Helper()
	_, after, _ := strings.Cut(p.Await(t, "node of a cluster"), " address=")
	address, _, _ := strings.Cut(after, " ")
	return address
}

// TestCluster_Users: what is sent by HTTP at one server reaches a user at another one, who has a limit of connections on both together.
func TestCluster_Users(t *testing.T) {
	t.Parallel()
	flags := []string{
		"--database-url", migrated(t).URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0", "--stored-rooms", "kept", "--max-user-connections", "3",
		"--auth-secret-file", secretFile(t, serverSecret), "--rule", "*: join,chat,history,presence,admin room:**", "--rule", "*: notify user:**",
	}
	one, other := serve(t, flags...), serve(t, flags...)
	connect := func(p *program) (*websocket.Conn, error) {
		token := authtest.Token(t, serverSecret, "ann", time.Hour, nil)
		return websocket.Dial(t.Context(), "ws://"+p.Addr+"/ws", websocket.Config{Header: http.Header{"Authorization": {"Bearer " + token}}})
	}
	conn, err := connect(other)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Abort)
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	ann := &chatReader{t: t, conn: conn}
	wants := func(has ...string) {
		t.Helper()
		got := ann.next()
		for _, part := range has {
			if !strings.Contains(got, part) {
				t.Errorf("ann got %s, want %s", got, part)
			}
		}
	}
	for _, name := range []string{"loose", "kept"} {
		say(conn, `{"type":"join","room":"%s","id":1}`, name)
		wants(`"ok"`)
	}
	backend := authtest.Token(t, serverSecret, "backend", time.Hour, nil)
	ask := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+one.Addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+backend)
		r.Header.Set("Content-Type", "application/json")
		return answerTo(t, r)
	}
	testkit.Eventually(t, "the servers hear each other", func() bool {
		return ask("GET", "/v1/rooms/loose/members", "") == `{"room":"loose","count":1,"members":["ann"],"stored":false}`
	})
	for _, c := range []struct{ path, body, answer, gets string }{
		{"/v1/users/ann/messages", `{"message":{"n":1}}`, `{"connections":1}`, `{"type":"notice","message":{"n":1}}`},
		{"/v1/rooms/loose/chats", `{"text":"hello"}`, `{}`, `{"type":"chat","room":"loose","text":"hello"}`},
		{"/v1/rooms/kept/chats", `{"text":"kept"}`, `{"position":1}`, `"room":"kept"`},
		{"/v1/rooms/loose/kick", `{"user":"ann"}`, `{"connections":1}`, `"code":"kicked"`},
	} {
		if got := ask("POST", c.path, c.body); got != c.answer {
			t.Errorf("%s: %s, want %s", c.path, got, c.answer)
		}
		wants(c.gets)
	}
	for range 2 {
		c, err := connect(one)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Abort)
	}
	testkit.Eventually(t, "the connections at one server count at the other", func() bool {
		c, err := connect(other)
		if err == nil { // it does not count any more after the handshake
			c.Close(websocket.StatusGoingAway, "")
			for end := error(nil); end == nil; {
				_, end = c.Read()
			}
		}
		return err != nil
	})
}

// TestConfig_NATSSecrets: the settings in force are shown without the users, passwords and tokens of NATS servers.
func TestConfig_NATSSecrets(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"nats://ann:hunter2@h:4222", "nats://hunter2@h:4222", "nats://a:4222,tls://ann:hunter2@h:4222", "ann:hunter2@h:4222,nats://hunter2@i:4222"} {
		code, out, errOut := run(t, nil, "config", "--cluster", "c", "--nats", address)
		if code != cli.ExitOK || strings.Contains(out+errOut, "hunter2") || !strings.Contains(out, "h:4222") {
			t.Errorf("%s: exit code %d\n%s%s", address, code, out, errOut)
		}
	}
}
