package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/testkit"
)

// rulesServer is a server in closed mode whose rules change, and whose events are held until the test lets them go. Its users have one turn each.
type rulesServer struct {
	closed
	policy   *auth.Policy
	acts     *administration
	snapshot atomic.Pointer[auth.Snapshot]
	held     *heldEvents
	denied   atomic.Bool // by the function that is asked for rights
	ask      func()      // is called by that function
}

func serveRules(t *testing.T, change func(*gateway.Config), rules ...string) *rulesServer {
	t.Helper()
	s := &rulesServer{closed: closed{t: t}, acts: &administration{}, held: &heldEvents{fakeEvents: newFakeEvents(), let: make(chan struct{})}}
	s.snapshot.Store(auth.NewSnapshot(nil, nil, nil))
	s.policy = policyOf(t, s.config(rules...))
	registry := limits.New(limits.Config{Pending: 100, UserQueries: 1})
	s.closed = serveClosed(t, func(cfg *gateway.Config) {
		cfg.Auth.Policy, cfg.Auth.Administration, cfg.Engine.Events, cfg.Limits = s.policy, s.acts, s.held, registry
		if change != nil {
			change(cfg)
		}
	})
	return s
}

// config allows users and anonymous callers the same. The word anonymous lets these in, and with function a function grants everything else.
func (s *rulesServer) config(rules ...string) (cfg auth.Config) {
	var allow []auth.Rule
	for _, text := range rules {
		switch text {
		case "anonymous":
			cfg.Anonymous = true
		case "function":
			cfg.Ask = func(context.Context, auth.Question) (bool, error) {
				if s.ask != nil {
					s.ask()
				}
				return !s.denied.Load(), nil
			}
		default:
			allow = append(allow, rulesFor(s.t, text)...)
		}
	}
	cfg.Access, cfg.Rules = s.snapshot.Load, []auth.RoleRule{{Role: "user", Allow: allow}, {Role: auth.Anonymous, Allow: allow}}
	return cfg
}

// allow changes the rules.
func (s *rulesServer) allow(rules ...string) {
	s.t.Helper()
	cfg := s.config(rules...)
	cfg.Token.Audience, cfg.Keys = "tidewire", []auth.Key{mustSecret(s.t)}
	if err := s.policy.Reload(cfg); err != nil {
		s.t.Fatal(err)
	}
	s.server.RulesChanged()
}

// revoke revokes all tokens of a user.
func (s *rulesServer) revoke(user string) {
	s.snapshot.Store(auth.NewSnapshot(nil, nil, map[string]time.Time{user: time.Now().Add(time.Hour)}))
	s.acts.changed(auth.Change{})
}

// TestRulesChanged: after a change of the rules, connections that say nothing lose what they may not have any more, on every endpoint, and
// have what they may now.
func TestRulesChanged(t *testing.T) {
	t.Parallel()
	for _, rates := range []limits.Config{{}, {RequestRate: 1000, ByteRate: 1 << 20}} {
		s := serveRules(t, func(cfg *gateway.Config) { cfg.Limits = limits.New(rates) }, "anonymous", "join room:{sub}", "join room:a", "read stream:orders", "write ingest:*")
		token := tokenOf(t, "ann", time.Hour, "join room:own")
		both, chat, ingest, guest := s.as("/ws", token), s.as("/ws/chat", token), s.as("/ws/ingest", token), connect(t, s.addr)
		for _, w := range []*wire{both, chat} {
			for _, room := range []string{"a", "ann", "own"} {
				w.ask(`{"id":1,"type":"join","room":"`+room+`"}`, `{"id":1,"type":"ok"}`)
			}
		}
		guest.ask(`{"id":1,"type":"join","room":"a"}`, `{"id":1,"type":"ok"}`)
		both.ask(`{"id":4,"type":"subscribe","stream":"orders","subscription":"s","credits":0}`, `{"type":"ok","id":4,"position":0}`)
		s.allow("join room:{sub}", "join room:b")
		gone, ended := `{"type":"error",`+forbidden("join", "room", "a")+`,"room":"a"}`, `{"type":"error","subscription":"s",`+forbidden("read", "stream", "orders")+`}`
		chat.want(gone)
		both.wantAll(gone, ended)
		for _, w := range []*wire{both, chat} {
			w.ask(`{"id":5,"type":"join","room":"b"}`, `{"id":5,"type":"ok"}`)
		}
		for name, w := range map[string]*wire{"ingest": ingest, "guest": guest} {
			if got := closeOf(t, w); got != 4401 {
				t.Errorf("%s was closed with %d", name, got)
			}
		}
		if err := s.policy.Reload(auth.Config{}); err == nil {
			t.Error("a policy without keys is taken")
		}
		both.ask(`{"id":6,"type":"join","room":"ann"}`, `{"id":6,"type":"ok"}`)
	}
}

// forbidden are the fields of a refusal for want of a right.
func forbidden(verb, kind, name string) string {
	return fmt.Sprintf(`"code":"forbidden","message":"no rule grants you this: see verb, kind and name","retryable":false,"verb":%q,"kind":%q,"name":%q`, verb, kind, name)
}

// wantAll expects these messages, in any order.
func (w *wire) wantAll(lines ...string) {
	w.t.Helper()
	left := make(map[string]bool)
	for _, line := range lines {
		left[line] = true
	}
	for range lines {
		got := w.next()
		if !left[got] {
			w.t.Fatalf("got %s\nwant one of %q", got, lines)
		}
		delete(left, got)
	}
}

// TestAuth_LateBody: a request whose body comes after a change of the rules has the rights of the new ones.
func TestAuth_LateBody(t *testing.T) {
	t.Parallel()
	s := serveRules(t, nil, "publish stream:orders")
	for stream, want := range map[string]int{"orders": http.StatusOK, "others": http.StatusForbidden} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		const body = `{"payload":"x"}`
		s.allow("publish stream:orders")
		fmt.Fprintf(conn, "POST /v1/streams/orders/messages HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
			s.addr, tokenOf(t, "ann", time.Hour), len(body))
		in := bufio.NewReader(conn)
		if first, err := http.ReadResponse(in, nil); err != nil || first.StatusCode != http.StatusContinue {
			t.Fatal(first, err) // it has looked at the rights before that
		}
		s.allow("publish stream:" + stream)
		fmt.Fprint(conn, body)
		if answer, err := http.ReadResponse(in, nil); err != nil || answer.StatusCode != want {
			t.Errorf("with a right to %s: %v, %v", stream, answer, err)
		}
	}
}

// TestTurns_Shared: a query that waits for what all users share needs its right after that.
func TestTurns_Shared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveRules(t, func(cfg *gateway.Config) { cfg.Limits = limits.New(limits.Config{UserQueries: 4}) }, "query events:*")
		let := opener(s.held.let)
		defer let()
		for u := range 16 { // who take all slots
			w := s.as("/ws", tokenOf(t, fmt.Sprint("u", u), time.Hour))
			send(t, w.socket, `{"type":"query","store":"e","id":1}`)
		}
		testkit.Eventually(t, "sixteen read", func() bool { return s.held.asked.Load() == 16 })
		ann := s.as("/ws", tokenOf(t, "ann", time.Hour))
		send(t, ann.socket, `{"type":"query","store":"e","id":"x"}`)
		time.Sleep(time.Second)
		s.allow("read stream:*")
		let()
		if a := ann.until(`"id":"x"`); !strings.Contains(a, "forbidden") || s.held.asked.Load() != 16 {
			t.Errorf("after the right has ended, the answer is %s", a)
		}
	})
}

// TestTurns_GivenUp: an append that has only waited for its turn when the server gives up is not stored, and the client gets that answer.
func TestTurns_GivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := serveRules(t, nil, "query events:*", "append events:*")
		defer opener(s.held.let)()
		w := s.as("/ws", tokenOf(t, "ann", time.Hour))
		send(t, w.socket, `{"type":"query","store":"e","id":1}`)
		testkit.Eventually(t, "one has the turn", func() bool { return s.held.asked.Load() == 1 })
		second := s.as("/ws", tokenOf(t, "ann", time.Hour))
		send(t, second.socket, `{"type":"append","store":"e","events":[{"type":"B"}],"condition":{"query":{"items":[{"tags":["x"]}]}},"id":"x"}`)
		time.Sleep(time.Second)
		s.server.GiveUp()
		if a := second.next(); !strings.Contains(a, `"id":"x"`) || strings.Contains(a, "outcome_unknown") {
			t.Errorf("it has not been given to the store: %s", a)
		}
	})
}
