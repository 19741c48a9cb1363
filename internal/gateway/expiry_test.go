package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// shortLife is how long a token is valid that ends in a test.
const shortLife = 20 * time.Second

// TestAuth_Expiry: a client is warned before its token ends, gets nothing new done after that, and is closed when the grace is over.
func TestAuth_Expiry(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Grace = 3 * time.Second })
		w := c.as("/ws", tokenOf(t, "ann", shortLife, "read,publish stream:orders"))
		const publish = `{"id":"x","type":"publish","stream":"orders","payload":"x"}`
		if got := w.code(publish); got != "ok" {
			t.Error(got)
		}
		began := time.Now()
		if first := w.next(); !strings.HasPrefix(first, `{"type":"expiring","expires_in_ms":`) || !json.Valid([]byte(first)) {
			t.Errorf("got %s", first)
		}
		if told := time.Since(began); told < time.Second || told > shortLife-10*time.Second {
			t.Errorf("it is warned after %v", told)
		}
		time.Sleep(time.Until(began.Add(shortLife + time.Second)))
		if got := w.code(publish); got != "token_expired" {
			t.Error(got)
		}
		if got := w.code(`{"id":"x","type":"unsubscribe","subscription":"none"}`); got != "not_subscribed" { // what ends something goes on
			t.Error(got)
		}
		if got := closeOf(t, w); got != 4401 {
			t.Errorf("closed with %d", got)
		}
		if took := time.Since(began); took < shortLife+2*time.Second || took > shortLife+5*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// TestAuth_Renewal: a connection with a new token does not end with its former one.
func TestAuth_Renewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Grace = time.Second })
		w := c.as("/ws", tokenOf(t, "ann", shortLife, "read stream:orders"))
		w.next()
		if got := w.code(fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour))); got != "ok" {
			t.Error(got)
		}
		w.silent(3 * shortLife)
	})
}

// TestAuth_RenewalWithOtherRights: a new token grants what it says, also of a request that the former one was granted just before.
func TestAuth_RenewalWithOtherRights(t *testing.T) {
	t.Parallel()
	c := serveClosed(t, nil)
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "publish stream:orders"))
	const publish = `{"id":"x","type":"publish","stream":"orders","payload":"x"}`
	for _, step := range [][2]string{
		{publish, "ok"}, {fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, tokenOf(t, "ann", time.Hour, "read stream:orders")), "ok"}, {publish, "forbidden"},
	} {
		if got := w.code(step[0]); got != step[1] {
			t.Errorf("%s: %s, want %s", step[0], got, step[1])
		}
	}
}

// TestAuth_ExpiryOfIngest: an endpoint without messages of its own sends none, and is closed when the token is over.
func TestAuth_ExpiryOfIngest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := serveClosed(t, nil)
		w := c.as("/ws/ingest", tokenOf(t, "ann", shortLife, "write ingest:*"))
		if all, err := endOf(w); len(all) > 0 || !isClose(err, 4401) {
			t.Errorf("got %q, %v, want a Close with 4401", all, err)
		}
	})
}

// TestAuth_Early: who sends no token in time is sent away.
func TestAuth_Early(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Timeout = time.Second })
		began := time.Now()
		if got := closeOf(t, connect(t, c.addr)); got != 4408 || time.Since(began) != time.Second {
			t.Errorf("no token in time: closed with %d after %v", got, time.Since(began))
		}
	})
}

// TestAuth_TokenEndsWhilePublishing: what waits for its commit when the token ends has its answer, and then the connection ends. What is sent
// after the end is not stored.
func TestAuth_TokenEndsWhilePublishing(t *testing.T) {
	for name, d := range map[string]struct {
		path, right, request string
		commits              bool
	}{
		"publish":         {"/ws", "publish stream:orders", `{"id":"x","type":"publish","stream":"orders","payload":"x"}`, true},
		"without commit":  {"/ws", "publish stream:orders", `{"id":"x","type":"publish","stream":"orders","payload":"x"}`, false},
		"chat on /ws":     {"/ws", "join,chat room:kept", `{"id":"x","type":"chat","room":"kept","text":"x"}`, true},
		"chat on its own": {"/ws/chat", "join,chat room:kept", `{"id":"x","type":"chat","room":"kept","text":"x"}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				rooms := newMemoryStore(t)
				c := serveClosed(t, func(cfg *gateway.Config) { cfg.Engine.Rooms, cfg.Chat.StoredRooms = rooms, []string{"kept"} })
				w := c.as(d.path, tokenOf(t, "ann", shortLife, d.right))
				if d.path == "/ws/chat" || d.right != "publish stream:orders" {
					w.ask(`{"id":9,"type":"join","room":"kept"}`, joined(0, 0))
				}
				c.streams.hold(true)
				rooms.hold(true)
				send(t, w.socket, d.request)
				time.AfterFunc(shortLife+2*time.Second, func() {
					c.streams.hold(!d.commits)
					rooms.hold(false)
				})
				all, err := endOf(w)
				if last := all[len(all)-1]; !isClose(err, 4401) || strings.Contains(last, `"type":"ok"`) != d.commits {
					t.Errorf("got %q and %v", all, err)
				}
				c.streams.hold(false)
				if n := rooms.count() + c.streams.stored("orders"); n != 1 && d.commits {
					t.Errorf("%d are stored", n)
				}
			})
		})
	}
}

// TestReceive_RightEndsWhileItWaits: a receive that waits is leased nothing once its right is gone, and gets the error of a new request, at once.
func TestReceive_RightEndsWhileItWaits(t *testing.T) {
	const life = 10 * time.Second
	for want, end := range map[string]func(*rulesServer){
		"401 invalid_token": func(s *rulesServer) { s.revoke("ann") },
		"403 forbidden":     func(s *rulesServer) { s.allow() },
		"401 token_expired": func(*rulesServer) { time.Sleep(life) }, // synctest: called in a bubble
	} {
		t.Run(want, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := serveRules(t, nil, "consume queue:*")
				token := tokenOf(t, "ann", life)
				answer := make(chan string, 1)
				go func() { answer <- s.status("POST", "/v1/queues/jobs/receive?wait_ms=20000", "", token) }()
				receiving := func() int { return lookAt(s.queues, func(*fakeQueue) int { return s.queues.receiving }) }
				testkit.Eventually(t, "it waits", func() bool { return receiving() > 0 })
				end(s)
				ended := time.Now()
				if got, later := <-answer, time.Since(ended); got != want || later > 0 {
					t.Errorf("answered with %s %v later, want %s", got, later, want)
				}
				s.enqueued(1)
				if leased := lookAt(s.queues, func(q *fakeQueue) int { return len(q.leased) }); leased > 0 {
					t.Error("it was leased a message")
				}
			})
		})
	}
}

// TestAuth_RightsAfterTheWait: a request that has waited for its turn needs its right once more, also if its token has ended, a function that is asked
// does not grant it any more, or it has waited for what all users share.
func TestAuth_RightsAfterTheWait(t *testing.T) {
	rights := []string{"read stream:*", "commit stream:*", "query events:*", "append events:*"}
	for name, d := range map[string]struct {
		end  func(*rulesServer)
		code string
	}{
		"rules":    {func(s *rulesServer) { s.allow("read stream:*") }, "forbidden"},
		"function": {func(s *rulesServer) { s.denied.Store(true); s.policy.Forget(auth.Change{AllRights: true}) }, "forbidden"},
		"token":    {func(*rulesServer) { time.Sleep(shortLife) }, "token_expired"}, // synctest: called in a bubble
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				all := rights
				if name == "function" {
					all = []string{"function"}
				}
				s := serveRules(t, func(cfg *gateway.Config) { cfg.Auth.Grace = time.Hour }, all...)
				first := s.as("/ws", tokenOf(t, "ann", time.Hour))
				send(t, first.socket, `{"type":"query","store":"e","query":{},"id":1}`)
				testkit.Eventually(t, "one request has the turn", func() bool { return s.held.asked.Load() == 1 })
				token := tokenOf(t, "ann", shortLife-time.Second)
				answers := make(chan string)
				for _, r := range [][3]string{
					{"POST", "/v1/events/query", `{"store":"e"}`}, {"GET", "/v1/events?store=e", ""}, {"POST", "/v1/events/project", `{"store":"e","queries":[{"items":[]}]}`},
					{"POST", "/v1/events", `{"store":"e","events":[{"type":"B"}],"condition":{"query":{"items":[{"tags":["x"]}]}}}`}, {"POST", "/v1/streams/orders/groups/g/commit", `{"position":1}`},
				} {
					go func() { answers <- s.status(r[0], r[1], r[2], token) }()
				}
				second := s.as("/ws", token)
				send(t, second.socket, `{"type":"commit","stream":"orders","group":"g","position":1,"id":1}`)
				time.Sleep(time.Second)
				d.end(s)
				close(s.held.let)
				for range 5 {
					if got := <-answers; !strings.HasSuffix(got, d.code) {
						t.Errorf("a request was answered with %s, want %s", got, d.code)
					}
				}
				if got := second.until(`"id":1`); !strings.Contains(got, d.code) {
					t.Errorf("on /ws: %s, want %s", got, d.code)
				}
				if len(s.held.events) > 0 {
					t.Errorf("%d events are stored", len(s.held.events))
				}
			})
		})
	}
}
