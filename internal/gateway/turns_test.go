package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
)

// turnConfig gives users some rights.
func turnConfig(t *testing.T, rules ...string) auth.Config {
	t.Helper()
	return auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{mustSecret(t)},
		Rules: []auth.RoleRule{{Role: "user", Allow: rulesFor(t, rules...)}}}
}

// turnServer is a server in closed mode on which a user has few turns, and one of its requests waits for the store until release.
type turnServer struct {
	limited
	policy  *auth.Policy
	held    *heldStreams
	release func()
}

func serveTurns(t *testing.T, queries int, events engine.Events, rules ...string) turnServer {
	t.Helper()
	policy, err := auth.NewPolicy(turnConfig(t, rules...))
	if err != nil {
		t.Fatal(err)
	}
	held := &heldStreams{fakeStreams: newFakeStreams(t, "orders", "held"), release: make(chan struct{})}
	l := serveLimited(t, "", limits.Config{Pending: 100, UserQueries: queries}, false, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Auth.Policy = held, policy
		if events != nil {
			cfg.Engine.Events = events
		}
	})
	release := sync.OnceFunc(func() { close(held.release) })
	t.Cleanup(release)
	return turnServer{l, policy, held, release}
}

// hold takes a turn until release.
func (s *turnServer) hold(token string) {
	first, _, _ := s.dial("/ws", bearer(token))
	send(s.t, first.Conn, `{"type":"subscribe","stream":"held","id":1}`)
	s.eventually("it asks the store", func() bool { return s.held.now.Load() == 1 })
}

// TestTurns_Events: an HTTP request for events that has waited for its turn needs its right once more.
func TestTurns_Events(t *testing.T) {
	t.Parallel()
	events := &fakeEvents{changed: make(chan struct{})}
	s := serveTurns(t, 1, events, "read stream:*", "commit stream:*", "query events:*", "append events:*")
	if _, err := events.Append(t.Context(), "e", nil, []engine.Event{{Type: "Secret"}}, nil); err != nil {
		t.Fatal(err)
	}
	token := tokenOf(t, "ann", time.Hour)
	s.hold(token)
	c := closed{t: t, addr: s.addr}
	type answer struct{ what, got string }
	answers := make(chan answer)
	ask := map[string][3]string{
		"query":   {"POST", "/v1/events/query", `{"store":"e"}`},
		"read":    {"GET", "/v1/events?store=e", ""},
		"project": {"POST", "/v1/events/project", `{"store":"e","queries":[{"items":[]}]}`},
		"append":  {"POST", "/v1/events", `{"store":"e","events":[{"type":"B"}],"condition":{"query":{"items":[{"tags":["x"]}]}}}`},
		"commit":  {"POST", "/v1/streams/orders/groups/g/commit", `{"position":1}`},
	}
	for what, r := range ask {
		go func() { answers <- answer{what, c.status(r[0], r[1], r[2], token)} }()
	}
	s.eventually("all wait", func() bool { return s.registry.Stats().Requests == len(ask) })
	time.Sleep(300 * time.Millisecond)
	if err := s.policy.Reload(turnConfig(t, "read stream:*")); err != nil {
		t.Fatal(err)
	}
	s.server.RulesChanged()
	time.Sleep(100 * time.Millisecond)
	s.release()
	for range ask {
		if a := <-answers; a.got != "403 forbidden" {
			t.Errorf("%s after the right has ended: %s", a.what, a.got)
		}
	}
	if stored, _ := events.Query(t.Context(), "e", engine.EventQuery{}, engine.EventRange{Limit: 9}); len(stored) != 1 {
		t.Errorf("%d events are stored", len(stored))
	}
}

// TestTurns_TokenEnds: a request on /ws is refused if its token ends while it waits.
func TestTurns_TokenEnds(t *testing.T) {
	t.Parallel()
	s := serveTurns(t, 1, nil, "read stream:*", "commit stream:*")
	s.hold(tokenOf(t, "ann", time.Hour))
	second, _, _ := s.dial("/ws", bearer(tokenOf(t, "ann", 2*time.Second)))
	send(t, second.Conn, `{"type":"commit","stream":"orders","group":"g","position":1,"id":1}`)
	time.Sleep(3 * time.Second)
	s.release()
	for {
		a := second.next()
		if strings.Contains(a, "expiring") {
			continue
		}
		if strings.Contains(a, `"type":"ok"`) {
			t.Errorf("a second after its token has ended: %s", a)
		}
		break
	}
}

// heldQueries answers queries only when it is released.
type heldQueries struct {
	*fakeEvents
	mu      sync.Mutex
	now     int
	release chan struct{}
}

func (h *heldQueries) Query(ctx context.Context, store string, q engine.EventQuery, r engine.EventRange) ([]engine.Event, error) {
	h.mu.Lock()
	h.now++
	h.mu.Unlock()
	<-h.release
	return h.fakeEvents.Query(ctx, store, q, r)
}

// TestTurns_Shared: a query that waits for what all users share needs its right after that.
func TestTurns_Shared(t *testing.T) {
	t.Parallel()
	events := &heldQueries{fakeEvents: &fakeEvents{changed: make(chan struct{})}, release: make(chan struct{})}
	if _, err := events.Append(t.Context(), "e", nil, []engine.Event{{Type: "Secret"}}, nil); err != nil {
		t.Fatal(err)
	}
	s := serveTurns(t, 4, events, "read stream:*", "query events:*")
	release := sync.OnceFunc(func() { close(events.release) })
	t.Cleanup(release)
	for u := range 4 { // 8 = maxReading
		c, _, _ := s.dial("/ws", bearer(tokenOf(t, fmt.Sprint("u", u), time.Hour)))
		for n := range 2 {
			send(t, c.Conn, fmt.Sprintf(`{"type":"query","store":"e","id":%d}`, n))
		}
	}
	s.eventually("eight read", func() bool { events.mu.Lock(); defer events.mu.Unlock(); return events.now == 8 })
	ann, _, _ := s.dial("/ws", bearer(tokenOf(t, "ann", time.Hour)))
	send(t, ann.Conn, `{"type":"query","store":"e","id":1}`)
	time.Sleep(300 * time.Millisecond)
	if err := s.policy.Reload(turnConfig(t, "read stream:*")); err != nil {
		t.Fatal(err)
	}
	s.server.RulesChanged()
	time.Sleep(300 * time.Millisecond)
	release()
	if a := ann.next(); strings.Contains(a, "Secret") {
		t.Errorf("300 ms after the right has ended, the store was asked, and the answer is %s", a)
	}
}

// TestRates_Chunked: bodies of unknown length are refused while the user owes bytes.
func TestRates_Chunked(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{Pending: 100, RequestRate: 1000, ByteRate: 1 << 10, MaxMessage: 1 << 20}, false, nil)
	token := tokenOf(t, "ann", time.Hour)
	got := map[int]int{}
	for range 200 {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.addr+"/v1/streams/orders/messages",
			io.MultiReader(strings.NewReader(`{"messages":[{"payload":"`+strings.Repeat("x", 64<<10)+`"}]}`)))
		r.ContentLength = -1
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil { // the server answers 429 and closes the connection before it has read the body
			got[http.StatusTooManyRequests]++
			continue
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		got[resp.StatusCode]++
	}
	if got[429] == 0 {
		t.Errorf("200 bodies of 64 KiB at 4 KiB a second: %v", got)
	}
}

// TestRates_ContentLength: a request that announces a large body, and does not send it, is no debt of the others of its address.
func TestRates_ContentLength(t *testing.T) {
	t.Parallel()
	l := serveLimited(t, "", limits.Config{RequestRate: 1000, ByteRate: 8 << 20, MaxMessage: 1 << 20}, false, func(cfg *gateway.Config) {
		c := turnConfig(t)
		c.Anonymous, c.Rules = true, []auth.RoleRule{{Role: auth.Anonymous, Allow: rulesFor(t, "publish stream:*", "consume queue:*")}}
		policy, err := auth.NewPolicy(c)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Auth.Policy = policy
	})
	victim, _, _ := l.dial("/ws", nil)
	victim.ask(`{"type":"publish","stream":"orders","payload":"x","id":1}`, `{"type":"ok","id":1,"position":1}`)
	conn, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "POST /v1/queues/jobs/ack HTTP/1.1\r\nHost: "+l.addr+"\r\nContent-Type: application/json\r\nContent-Length: 4611686018427387904\r\n\r\n")
	time.Sleep(300 * time.Millisecond)
	conn.Close()
	time.Sleep(100 * time.Millisecond)
	send(t, victim.Conn, `{"type":"publish","stream":"orders","payload":"x","id":2}`)
	if a := victim.next(); strings.Contains(a, "rate_limited") {
		t.Errorf("another client of the address got %s", a)
	}
}

// TestTurns_Asked: a right that a function has granted is asked for again after the wait.
func TestTurns_Asked(t *testing.T) {
	t.Parallel()
	var denied sync.Map
	c := turnConfig(t, "read stream:*")
	c.Ask = func(_ context.Context, q auth.Question) (bool, error) {
		_, no := denied.Load("now")
		return !no, nil
	}
	policy, err := auth.NewPolicy(c)
	if err != nil {
		t.Fatal(err)
	}
	held := &heldStreams{fakeStreams: newFakeStreams(t, "orders", "held"), release: make(chan struct{})}
	l := serveLimited(t, "", limits.Config{Pending: 100, UserQueries: 1}, false, func(cfg *gateway.Config) {
		cfg.Engine.Streams, cfg.Auth.Policy = held, policy
	})
	release := sync.OnceFunc(func() { close(held.release) })
	t.Cleanup(release)
	s := turnServer{l, policy, held, release}
	token := tokenOf(t, "ann", time.Hour)
	s.hold(token)
	plain := closed{t: t, addr: s.addr}
	got := make(chan string)
	go func() { got <- plain.status("POST", "/v1/streams/orders/groups/g/commit", `{"position":1}`, token) }()
	second, _, _ := s.dial("/ws", bearer(token))
	send(t, second.Conn, `{"type":"commit","stream":"orders","group":"g","position":1,"id":1}`)
	time.Sleep(300 * time.Millisecond)
	denied.Store("now", true)
	policy.Forget(auth.Change{AllRights: true})
	time.Sleep(100 * time.Millisecond)
	release()
	if a := <-got; a != "403 forbidden" {
		t.Errorf("HTTP: %s", a)
	}
	if a := second.next(); !strings.Contains(a, "forbidden") {
		t.Errorf("/ws: %s", a)
	}
}

// TestTurns_GivenUp: an append that has only waited for its turn when the server gives up is not stored, and the client is told so.
func TestTurns_GivenUp(t *testing.T) {
	t.Parallel()
	s := serveTurns(t, 1, nil, "read stream:*", "query events:*", "append events:*")
	token := tokenOf(t, "ann", time.Hour)
	s.hold(token)
	second, _, _ := s.dial("/ws", bearer(token))
	send(t, second.Conn, `{"type":"append","store":"e","events":[{"type":"B"}],"condition":{"query":{"items":[{"tags":["x"]}]}},"id":1}`)
	time.Sleep(300 * time.Millisecond)
	s.server.GiveUp()
	if a := second.next(); strings.Contains(a, "outcome_unknown") {
		t.Errorf("it has not been given to the store: %s", a)
	}
	s.release()
}
