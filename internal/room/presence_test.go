package room_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/room"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// lobby is a hub with a server. A connection joins the rooms in its URL and
// watches the last of them; its messages are published in the first.
type lobby struct {
	hub *room.Hub
	url string

	mu     sync.Mutex
	ghosts []*room.Member
	conns  map[string]*websocket.Conn // the server's ends, by user
	// watching are the members that watch, by user.
	watching map[string]*room.Member
}

func newLobby(t *testing.T, cfg room.Config) *lobby {
	t.Helper()
	l := &lobby{hub: room.NewHub(cfg), conns: make(map[string]*websocket.Conn), watching: make(map[string]*room.Member)}
	var serving sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := websocket.Upgrade(w, r, websocket.Config{}); err == nil {
			serving.Go(func() { l.serve(conn, r.URL.Query()) })
		}
	}))
	l.url = "ws" + strings.TrimPrefix(server.URL, "http") + "?"
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
		for _, g := range l.ghosts {
			g.Leave() // if it has not yet
		}
		l.hub.Wait()
		if s := l.hub.Stats(); s.Rooms != 0 {
			t.Errorf("%d rooms are left", s.Rooms)
		}
	})
	return l
}

func (l *lobby) serve(conn *websocket.Conn, query url.Values) {
	l.mu.Lock()
	l.conns[query.Get("user")] = conn
	l.mu.Unlock()
	var members []*room.Member
	for _, name := range query["room"] {
		opts := room.JoinOptions{User: query.Get("user"), DisconnectOnLag: query.Get("on_lag") == "disconnect" && name == "watched"}
		members = append(members, l.hub.Join(conn, name, opts))
	}
	l.mu.Lock()
	l.watching[query.Get("user")] = members[len(members)-1]
	l.mu.Unlock()
	conn.Queue(websocket.OpText, []byte(`{"type":"ok"}`))
	if query.Has("watch") {
		members[len(members)-1].Watch()
		members[len(members)-1].Watch() // twice is once
	}
	for {
		messages, err := conn.Read()
		for _, m := range messages {
			members[0].Publish(m.Op, m.Payload)
		}
		if err != nil {
			for _, m := range members {
				m.Leave()
				m.Leave() // twice is once
				m.Watch() // and comes too late
			}
			conn.Close(websocket.StatusNormal, "")
			return
		}
	}
}

// ghost joins without a connection: it is not a watcher, and nobody may publish
// in its room.
func (l *lobby) ghost(user string) *room.Member {
	m := l.hub.Join(nil, "watched", room.JoinOptions{User: user})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ghosts = append(l.ghosts, m)
	return m
}

// view is a client's view of a room.
type view struct {
	conn           *websocket.Conn
	joined         bool
	other          int // messages that are not presence messages
	count          int
	names          map[string]bool
	truncated      bool
	lists, batches int
}

func (l *lobby) dial(t *testing.T, query string) *view {
	t.Helper()
	c, err := websocket.Dial(t.Context(), l.url+query, websocket.Config{MaxUnsent: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	v := &view{conn: c}
	if err := v.until(func() bool { return v.joined }); err != nil {
		t.Fatal(err)
	}
	return v
}

func (l *lobby) watch(t *testing.T, user string) *view {
	t.Helper()
	return l.dial(t, "room=watched&watch&user="+user)
}

// apply applies a message of the room to the view. It fails if the message is
// not in the documented form, or repeats known changes.
func (v *view) apply(payload []byte) error {
	var m struct {
		Type, Room            string
		Count                 int
		Members, Joined, Left []string
		Truncated             bool
	}
	if err := json.Unmarshal(payload, &m); err != nil || m.Type != "presence" {
		v.joined = v.joined || m.Type == "ok"
		v.other++
		return nil
	}
	if !v.joined {
		return errors.New("presence before the answer to the join")
	}
	for _, names := range [][]string{m.Members, m.Joined, m.Left} {
		if !slices.IsSorted(names) || len(names) > 1000 {
			return fmt.Errorf("%d names, sorted %v", len(names), slices.IsSorted(names))
		}
	}
	v.count = m.Count
	if m.Members != nil {
		v.lists++
		v.truncated = m.Truncated
		v.names = make(map[string]bool)
		m.Joined = append(m.Joined, m.Members...)
	} else {
		v.batches++
	}
	if v.names == nil || m.Room != "watched" {
		return fmt.Errorf("a batch before the list, or of room %q", m.Room)
	}
	for _, name := range m.Joined {
		if v.names[name] {
			return fmt.Errorf("%q joined twice", name)
		}
		v.names[name] = true
	}
	for _, name := range m.Left {
		if !v.names[name] && !v.truncated {
			return fmt.Errorf("%q left twice", name)
		}
		delete(v.names, name)
	}
	return nil
}

// until reads until the view satisfies a condition.
func (v *view) until(wanted func() bool) error {
	v.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	for !wanted() {
		messages, err := v.conn.Read()
		for _, m := range messages {
			if err := v.apply(m.Payload); err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("%w: count %d, %d names, %d lists, %d batches", err, v.count, len(v.names), v.lists, v.batches)
		}
	}
	return nil
}

// is reads until the view shows exactly these users, and this number of
// connections.
func (v *view) is(t *testing.T, count int, users ...string) {
	t.Helper()
	err := v.until(func() bool {
		there := slices.IndexFunc(users, func(user string) bool { return !v.names[user] }) < 0
		return there && v.count == count && len(v.names) == len(users)
	})
	if err != nil {
		t.Fatalf("want %d connections of %q: %v", count, users, err)
	}
}

func TestPresence_ListThenBatches(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{})
	other := l.hub.Join(nil, "other", room.JoinOptions{User: "elsewhere"})
	defer other.Leave()
	first := l.ghost("first")
	alice := l.watch(t, "alice")
	alice.is(t, 2, "alice", "first")
	nameless := l.ghost("")
	alice.is(t, 3, "alice", "first")
	first.Leave()
	bob := l.watch(t, "bob")
	bob.is(t, 3, "alice", "bob")
	alice.is(t, 3, "alice", "bob")
	nameless.Leave()
	alice.is(t, 2, "alice", "bob")
	bob.is(t, 2, "alice", "bob")
	bob.conn.Abort()
	alice.is(t, 1, "alice")
	if alice.lists != 1 || bob.lists != 1 {
		t.Errorf("%d and %d lists, want one each", alice.lists, bob.lists)
	}
}

// TestPresence_UserOfSeveralConnections: a user joins with the first connection
// and leaves with the last; apply fails if there is any message in between.
func TestPresence_UserOfSeveralConnections(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{})
	alice := l.watch(t, "alice")
	again := l.watch(t, "alice")
	alice.is(t, 2, "alice")
	again.is(t, 2, "alice")
	var bobs []*room.Member
	for n := range 3 {
		bobs = append(bobs, l.ghost("bob"))
		alice.is(t, 3+n, "alice", "bob")
	}
	for n, bob := range bobs {
		again.is(t, 5-n, "alice", "bob")
		bob.Leave()
	}
	alice.is(t, 2, "alice")
	again.conn.Abort()
	alice.is(t, 1, "alice")
}

// TestPresence_NotForOtherMembers: members that do not watch get only the
// chats.
func TestPresence_NotForOtherMembers(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{})
	plain := l.dial(t, "room=watched&user=plain")
	alice := l.watch(t, "alice")
	alice.is(t, 2, "alice", "plain")
	bob := l.dial(t, "room=watched&user=bob")
	alice.is(t, 3, "alice", "bob", "plain")
	bob.conn.Queue(websocket.OpText, []byte("hello"))
	bob.conn.Flush()
	for _, v := range []*view{plain, alice} {
		if err := v.until(func() bool { return v.other == 2 }); err != nil {
			t.Fatal(err)
		}
	}
	if plain.lists+plain.batches > 0 {
		t.Error("presence for a member that does not watch")
	}
	waitStats(t, l.hub, room.Stats{Deliveries: 2, Rooms: 1}) // only chats
}

func TestPresence_TruncatesLongLists(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{})
	var ghosts []*room.Member
	for i := range 1500 {
		ghosts = append(ghosts, l.ghost(fmt.Sprint("ghost", i)))
	}
	alice := l.watch(t, "alice")
	wait := func(what string, wanted func() bool) {
		t.Helper()
		if err := alice.until(wanted); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	wait("list", func() bool { return alice.lists == 1 })
	if alice.count != 1501 || len(alice.names) != 1000 || !alice.truncated {
		t.Errorf("count %d, %d names, truncated %v, want 1501, 1000, true", alice.count, len(alice.names), alice.truncated)
	}
	for _, g := range ghosts[:1400] { // too many changes for a batch
		g.Leave()
	}
	wait("leaves", func() bool { return alice.count == 101 })
	if alice.truncated {
		t.Skip("the machine is so slow that the leaves came in several batches")
	}
	if len(alice.names) != 101 {
		t.Errorf("%d lists, the last of %d names, want 101", alice.lists, len(alice.names))
	}
	for _, g := range ghosts[1400:] {
		g.Leave()
	}
	alice.is(t, 1, "alice")
}

// TestPresence_NoGapUnderChurn: watchers and other members come and go. Each
// watcher, at any time, gets the correct state, and no change twice.
func TestPresence_NoGapUnderChurn(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{})
	stop := make(chan struct{})
	var churning, watching sync.WaitGroup
	settle := sync.OnceFunc(func() {
		close(stop)
		churning.Wait()
	})
	defer settle()
	stayed := make([][]ghost, 4)
	for i := range stayed {
		churning.Go(func() { stayed[i] = l.churn(uint64(i), stop) })
	}
	steady := []*view{l.watch(t, "steady0"), l.watch(t, "steady1")}
	for _, v := range steady {
		watching.Go(func() {
			if err := v.until(func() bool { return v.batches > 3 }); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 4 {
		watching.Go(func() {
			for round := range 4 {
				v := l.watch(t, fmt.Sprint("passing", i))
				if err := v.until(func() bool { return v.lists+v.batches > round }); err != nil || v.lists != 1 {
					t.Errorf("passing watcher: %v, %d lists", err, v.lists)
				}
				v.conn.Abort()
			}
		})
	}
	watching.Wait()
	steady = append(steady, l.watch(t, "steady2")) // amid the churn
	settle()
	users := []string{"steady0", "steady1", "steady2"}
	for _, g := range slices.Concat(stayed...) {
		users = append(users, g.user)
	}
	count := len(users)
	slices.Sort(users)
	for _, v := range steady {
		if v.is(t, count, slices.Compact(slices.Clone(users))...); v.lists != 1 {
			t.Errorf("%d lists, want one", v.lists)
		}
	}
}

type ghost struct {
	user   string
	member *room.Member
}

// churn makes ghosts with few names come and go, and returns those that stay.
func (l *lobby) churn(seed uint64, stop <-chan struct{}) (ghosts []ghost) {
	random := rand.New(rand.NewPCG(seed, 1))
	for {
		select {
		case <-stop:
			return ghosts
		default:
		}
		if random.IntN(40) < len(ghosts) {
			at := random.IntN(len(ghosts))
			ghosts[at].member.Leave()
			ghosts = slices.Delete(ghosts, at, at+1)
		} else {
			user := fmt.Sprint("ghost", random.IntN(50))
			ghosts = append(ghosts, ghost{user, l.ghost(user)})
		}
		time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond) // pace: of a crowd
	}
}

// jam returns a watcher whose socket is full of other messages.
func (l *lobby) jam(t *testing.T, query string) *view {
	t.Helper()
	slow := l.dial(t, "room=watched&watch&user=slow&"+query)
	if err := slow.until(func() bool { return slow.lists == 1 }); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	conn := l.conns["slow"]
	l.mu.Unlock()
	noise := websocket.AppendFrame(nil, websocket.OpText, make([]byte, 8<<10))
	still, last := 0, -1
	testkit.Eventually(t, "the slow watcher takes nothing", func() bool {
		for taken := 1; taken > 0 && conn.Backlog() < 128<<10; {
			taken, _ = conn.WriteShared(noise)
		}
		if still++; conn.Backlog() != last || last < 96<<10 { // directly after a burst its kernel may only be slow
			still, last = 0, conn.Backlog()
		}
		return still == 20
	})
	return slow
}

// TestPresence_WatcherThatDoesNotRead: a watcher that does not read delays
// nobody, and gets a new list when it reads again.
func TestPresence_WatcherThatDoesNotRead(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{MaxLagBytes: 64 << 10, MaxLagAge: 50 * time.Millisecond})
	quick := l.watch(t, "quick")
	slow := l.jam(t, "")
	users := []string{"quick", "slow"}
	for i := range 4 { // each is a batch; the time between two is longer than a watcher may lag
		user := fmt.Sprint("ghost", i)
		l.ghost(user)
		users = append(users, user)
		quick.is(t, len(users), users...)
	}
	slow.is(t, len(users), users...)
	if slow.lists < 2 || quick.lists != 1 {
		t.Errorf("%d lists for the slow watcher and %d for the quick one, want a new one for the slow", slow.lists, quick.lists)
	}
	l.ghost("late") // and it follows again
	lists := slow.lists
	if slow.is(t, len(users)+1, append(users, "late")...); slow.lists != lists {
		t.Error("a list where a batch would do")
	}
}

// TestPresence_SlowWatcherGetsTheBatchLater: a slow watcher gets the batch
// later, though nothing changes any more and its lag is too small for a new
// list.
func TestPresence_SlowWatcherGetsTheBatchLater(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{MaxLagBytes: 64 << 10, MaxLagAge: time.Minute})
	quick := l.watch(t, "quick")
	slow := l.jam(t, "")
	l.ghost("ghost")
	quick.is(t, 3, "ghost", "quick", "slow")
	if slow.is(t, 3, "ghost", "quick", "slow"); slow.lists != 1 {
		t.Errorf("%d lists, want one", slow.lists)
	}
}

// TestPresence_LaggingWatcherIsClosedIfItAsked: a lagging watcher with
// DisconnectOnLag is closed, though nothing is published in its room.
func TestPresence_LaggingWatcherIsClosedIfItAsked(t *testing.T) {
	t.Parallel()
	l := newLobby(t, room.Config{MaxLagBytes: 64 << 10, MaxLagAge: 50 * time.Millisecond, LagCloseTimeout: time.Minute})
	quick := l.watch(t, "quick")
	slow := l.jam(t, "on_lag=disconnect")
	quick.is(t, 2, "quick", "slow")
	for i := range 3 {
		l.ghost("ghost")
		quick.is(t, 3+i, "ghost", "quick", "slow")
	}
	err := slow.until(func() bool { return false })
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation {
		t.Errorf("got %v, want code 1008", err)
	}
	slow.conn.Close(websocket.StatusPolicyViolation, "")
	quick.is(t, 4, "ghost", "quick")
}
