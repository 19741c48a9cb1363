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
	var got []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got = slices.Clone(l.lines)
		l.mu.Unlock()
		if slices.Equal(got, lines) {
			return
		}
	}
	t.Fatalf("told was\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
}

// TestConnected_Closed: in closed mode a connection is told once its user is known. Memberships are told as the rooms know them, also when a right ends them.
func TestConnected_Closed(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws/chat"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			l := new(told)
			c := serveClosed(t, func(cfg *gateway.Config) { cfg.Connected = l.connected })
			w := &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
			ann := func(id int, allow ...string) {
				send(t, w.Conn, fmt.Sprintf(`{"type":"auth","id":%d,"token":"%s"}`, id, tokenOf(t, "ann", time.Hour, allow...)))
			}
			_ = dial(t, "ws://"+c.addr+path) // without a token nothing is told
			ann(1, "join room:*")
			l.want(t, "1 connected ann")
			send(t, w.Conn, `{"type":"join","id":2,"room":"a"}`)
			send(t, w.Conn, `{"type":"join","id":3,"room":"b"}`)
			l.want(t, "1 connected ann", "1 joined a ann", "1 joined b ann")
			send(t, w.Conn, fmt.Sprintf(`{"type":"auth","id":4,"token":"%s"}`, tokenOf(t, "ann", time.Hour, "join room:b")))
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
	w := &wire{Conn: dial(t, "ws://"+c.addr+"/ws"), t: t}
	send(t, w.Conn, `{"type":"join","id":1,"room":"a"}`)
	l.want(t, "1 connected ", "1 joined a ")
	send(t, w.Conn, fmt.Sprintf(`{"type":"auth","id":2,"token":"%s"}`, tokenOf(t, "ann", time.Hour, "join room:*")))
	send(t, w.Conn, `{"type":"join","id":3,"room":"b"}`)
	l.want(t, "1 connected ", "1 joined a ", "1 named ann", "1 joined b ann")
}

// TestConnected_Open: in open mode connections have no user, and members the name that they give. Connections to other endpoints are not told.
func TestConnected_Open(t *testing.T) {
	t.Parallel()
	l := new(told)
	_, addr := serve(t, gateway.Config{Only: gateway.Chat, Connected: l.connected})
	w := &wire{Conn: dial(t, "ws://"+addr+"/ws/chat"), t: t}
	send(t, w.Conn, `{"type":"join","id":1,"room":"a","user":"ann"}`)
	send(t, w.Conn, `{"type":"join","id":2,"room":"a","user":"bob"}`) // it is there already
	send(t, w.Conn, `{"type":"chat","user":"cid","text":"x"}`)        // joins the public room
	l.want(t, "1 connected ", "1 joined a ann", "1 joined public cid")
	send(t, w.Conn, `{"type":"leave"}`)
	w.Abort()
	var got []string
	for deadline := time.Now().Add(time.Minute); len(got) < 6 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got = slices.Clone(l.lines)
		l.mu.Unlock()
	}
	if len(got) != 6 {
		t.Fatalf("told was %v", got)
	}
	slices.Sort(got[3:5]) // in any order
	if want := []string{"1 left a ann", "1 left public cid", "1 disconnected"}; !slices.Equal(got[3:], want) {
		t.Errorf("told was %v, want %v", got[3:], want)
	}
}

func serveAnonymous(t *testing.T, change func(*gateway.Config), rule string) closed {
	t.Helper()
	key, err := auth.NewSecret("", tokenSecret)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := auth.ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Anonymous: true, Rules: []auth.RoleRule{{Role: auth.Anonymous, Allow: []auth.Rule{parsed}}}})
	if err != nil {
		t.Fatal(err)
	}
	return serveClosed(t, func(cfg *gateway.Config) {
		cfg.Auth.Policy = policy
		change(cfg)
	})
}
