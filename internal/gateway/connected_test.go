package gateway_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// told is what a server has told of its connections, in order.
type told struct {
	mu    sync.Mutex
	lines []string
	conns int
}

// observed is a connection of told.
type observed struct {
	all    *told
	number int
}

func (o observed) say(words ...string) {
	o.all.mu.Lock()
	defer o.all.mu.Unlock()
	o.all.lines = append(o.all.lines, strings.Join(append([]string{fmt.Sprint(o.number)}, words...), " "))
}

func (o observed) Joined(room, user string) { o.say("joined", room, user) }
func (o observed) Left(room, user string)   { o.say("left", room, user) }
func (o observed) Named(user string)        { o.say("named", user) }
func (o observed) Disconnected()            { o.say("disconnected") }

func (l *told) connected(user string) gateway.ConnectionObserver {
	l.mu.Lock()
	l.conns++
	o := observed{l, l.conns}
	l.mu.Unlock()
	o.say("connected", user)
	return o
}

// want waits until exactly that was told.
func (l *told) want(t *testing.T, lines ...string) {
	t.Helper()
	slices.Sort(lines)
	testkit.Eventually(t, fmt.Sprintf("all is reported: %q", lines), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Equal(slices.Sorted(slices.Values(l.lines)), lines)
	})
}

// TestConnected_Closed: in closed mode a connection is told once its user is known. Memberships are told as the rooms know them, also when a right ends them.
func TestConnected_Closed(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws/chat"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			l := new(told)
			c := serveClosed(t, func(cfg *gateway.Config) { cfg.Connected = l.connected })
			w := &wire{socket: dial(t, "ws://"+c.addr+path), t: t}
			ann := func(id int, allow ...string) {
				send(t, w.socket, fmt.Sprintf(`{"type":"auth","id":%d,"token":"%s"}`, id, tokenOf(t, "ann", time.Hour, allow...)))
			}
			_ = dial(t, "ws://"+c.addr+path) // without a token nothing is told
			ann(1, "join room:*")
			l.want(t, "1 connected ann")
			send(t, w.socket, `{"type":"join","id":2,"room":"a"}`)
			send(t, w.socket, `{"type":"join","id":3,"room":"b"}`)
			l.want(t, "1 connected ann", "1 joined a ann", "1 joined b ann")
			send(t, w.socket, fmt.Sprintf(`{"type":"auth","id":4,"token":"%s"}`, tokenOf(t, "ann", time.Hour, "join room:b")))
			l.want(t, "1 connected ann", "1 joined a ann", "1 joined b ann", "1 left a ann")
			w.Abort()
			l.want(t, "1 connected ann", "1 joined a ann", "1 joined b ann", "1 left a ann", "1 left b ann", "1 disconnected")
		})
	}
}

// TestConnected_Anonymous: an anonymous connection is told at once, and named when its token comes. Its memberships keep the name that the room knows.
func TestConnected_Anonymous(t *testing.T) {
	t.Parallel()
	l := new(told)
	c := serveAnonymous(t, func(cfg *gateway.Config) { cfg.Connected = l.connected }, "join room:*")
	w := &wire{socket: dial(t, "ws://"+c.addr+"/ws"), t: t}
	send(t, w.socket, `{"type":"join","id":1,"room":"a"}`)
	l.want(t, "1 connected ", "1 joined a ")
	send(t, w.socket, fmt.Sprintf(`{"type":"auth","id":2,"token":"%s"}`, tokenOf(t, "ann", time.Hour, "join room:*")))
	send(t, w.socket, `{"type":"join","id":3,"room":"b"}`)
	l.want(t, "1 connected ", "1 joined a ", "1 named ann", "1 joined b ann")
}

func serveAnonymous(t *testing.T, change func(*gateway.Config), rule string) closed {
	t.Helper()
	policy := policyOf(t, auth.Config{Anonymous: true, Rules: []auth.RoleRule{{Role: auth.Anonymous, Allow: rulesFor(t, rule)}}})
	return serveClosed(t, func(cfg *gateway.Config) {
		cfg.Auth.Policy = policy
		change(cfg)
	})
}
