package stream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// failoverRequests: a lost request is stored when it is repeated, and a kept one is not stored again. A
// repetition returns the position of the message.
func failoverRequests(t *testing.T, p *part, opts stream.Options) {
	s := lookUpWith(t, p.primary, p.pool, "orders", opts)
	a := run(t, p.pool, s, stream.AppenderConfig{})
	request := func(sequence int64) stream.Appended {
		t.Helper()
		stored, err := a.AppendAs(t.Context(), stream.RequestID{Client: "p", Sequence: sequence}, stream.Message{Payload: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	var before []stream.Appended
	for sequence := range int64(5) {
		before = append(before, request(sequence))
	}
	kept := time.Now()
	p.lose(t)
	for sequence := int64(5); sequence < 8; sequence++ {
		before = append(before, request(sequence))
	}
	p.promote(t)
	for sequence := int64(7); sequence >= 0; sequence-- {
		stored := request(sequence)
		if isKept := sequence < 5; stored.Duplicate != isKept || isKept != (stored.First == before[sequence].First) {
			t.Errorf("sequence %d: %+v, before the failover %+v", sequence, stored, before[sequence])
		}
		if again := request(sequence); !again.Duplicate || again.First != stored.First {
			t.Errorf("sequence %d again: %+v, want the position of %+v", sequence, again, stored)
		}
	}
	hub, _ := runHub(t, p.pool, stream.HubConfig{})
	if page := next(t, subscribe(t, hub, s, stream.AtTime(kept))); page[0].Position <= before[7].First {
		t.Errorf("since the time of what is lost: begins at %d", page[0].Position)
	}
	if all := everything(t, s); len(all) != 8 {
		t.Errorf("%d messages, want 8", len(all))
	}
}

// failoverRetention: a reader at a lost position gets an error, also if all earlier messages have been
// dropped and none has come since.
func failoverRetention(t *testing.T, p *part, opts stream.Options) {
	s := lookUpWith(t, p.primary, p.pool, "orders", opts)
	a := run(t, p.pool, s, stream.AppenderConfig{})
	kept := appendEach(t, a, "kept", 20)
	p.lose(t)
	lost := appendEach(t, a, "lost", 10)
	after := p.promote(t)
	if _, err := migrate.EnterHistory(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	s = lookUp(t, after, "orders")
	check := func(when string) {
		t.Helper()
		for _, position := range []int64{lost[0], lost[9], lost[9] + 5} {
			_, err := s.Read(t.Context(), position, 3)
			wantLost(t, when, err, kept[19])
		}
		if page, err := s.Read(t.Context(), kept[19], 3); err != nil || len(page) > 0 {
			t.Errorf("%s: after the last that is kept: %d messages, %v", when, len(page), err)
		}
	}
	check("at once")
	keep(t, after)
	alter(t, after, s, stream.Retention{MaxAge: time.Millisecond})
	waitInfo(t, s, "all are dropped", func(i stream.Info) bool { return i.Oldest == kept[19]+1 })
	check("when all are dropped")
	alter(t, after, s, stream.Retention{})
	fresh := mustAppend(t, run(t, after, s, stream.AppenderConfig{}), stream.Message{})
	if page, err := s.Read(t.Context(), fresh-1, 3); err != nil || len(page) != 1 {
		t.Errorf("the new message: %d, %v", len(page), err)
	}
	for _, position := range []int64{lost[0], lost[9]} {
		if _, err := s.Read(t.Context(), position, 3); !errors.Is(err, stream.ErrHistoryLost) && !errors.Is(err, stream.ErrTooOld) {
			t.Errorf("after %d, with a new message: %v", position, err)
		}
	}
}

// failoverAgain: if the first check after a failover fails because PostgreSQL does not
// answer, the next check finds the losses.
func failoverAgain(t *testing.T, p *part) {
	s := lookUpWith(t, p.primary, p.pool, "orders", stream.Options{})
	looked := make(chan struct{}, 1)
	log := slog.New(slog.NewTextHandler(logFunc(func(line string) {
		if strings.Contains(line, "search for messages lost") {
			select {
			case looked <- struct{}{}:
			default:
			}
		}
	}), nil))
	hub, _ := runHub(t, p.pool, stream.HubConfig{Poll: 100 * time.Millisecond, Log: log})
	a := run(t, p.pool, s, stream.AppenderConfig{Hub: hub})
	appendEach(t, a, "kept", 5)
	rename := func(pool *pgxpool.Pool, from, to string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), fmt.Sprintf(`ALTER FUNCTION tidewire.%s RENAME TO %s`, from, to)); err != nil {
			t.Fatal(err)
		}
	}
	rename(p.primary, "last_kept", "last_kept_away")
	p.lose(t)
	appendEach(t, a, "lost", 10)
	after := p.promote(t)
	<-looked
	if n := hub.Lost(); n != 0 {
		t.Errorf("%d positions are said to be lost before anybody could look", n)
	}
	rename(after, "last_kept_away", "last_kept")
	testkit.Eventually(t, "losses are found", func() bool { return hub.Lost() > 0 })
	if n := hub.Lost(); n != 10 {
		t.Errorf("%d positions are said to be lost, want 10", n)
	}
}

// failoverIDs: objects created after a failover never get the IDs of lost ones, however many were lost:
// so the holder of a lost object cannot change a new one.
func failoverIDs(t *testing.T, p *part) {
	orders := lookUpWith(t, p.primary, p.pool, "orders", stream.Options{})
	kept := appendEach(t, run(t, p.pool, orders, stream.AppenderConfig{}), "kept", 20)
	groups, _ := runGroups(t, p.pool, stream.GroupsConfig{})
	owned := openGroup(t, groups, orders, "owned")
	p.lose(t)

	ids := make(map[int32]string)
	lost := lookUpWith(t, p.primary, p.pool, "lost", stream.Options{})
	ids[lost.ID()] = "stream lost"
	for i := range 40 { // more than PostgreSQL writes to its log at a time
		s := lookUpWith(t, p.primary, p.primary, fmt.Sprint("lost ", i), stream.Options{})
		ids[s.ID()] = s.Name()
	}
	lostGroup := openGroup(t, groups, orders, "lost")
	groupIDs := map[int32]bool{lostGroup.ID(): true}
	for i := range 40 {
		groupIDs[openGroup(t, groups, orders, fmt.Sprint("lost ", i)).ID()] = true
	}
	a := run(t, p.pool, lost, stream.AppenderConfig{})
	mustAppend(t, a, messages("lost")...)
	token := ownOne(t, p.primary)

	after := p.promote(t)
	others, _ := runGroups(t, after, stream.GroupsConfig{})
	for i := range 10 {
		s := lookUpWith(t, after, after, fmt.Sprint("after ", i), stream.Options{})
		if name, twice := ids[s.ID()]; twice {
			t.Errorf("%s has the id of %s", s.Name(), name)
		}
		if g := openGroup(t, others, orders, fmt.Sprint("after ", i)); groupIDs[g.ID()] {
			t.Errorf("group %s has the id of one that is lost", g.Name())
		}
	}
	if _, err := a.Append(t.Context(), messages("to what is lost")...); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("an append to a lost stream: %v", err)
	}
	if _, err := lostGroup.Commit(t.Context(), kept[19]); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("a commit for a lost group: %v", err)
	}
	if second := ownOne(t, after); second == token {
		t.Errorf("token %d names two ownerships", token)
	}
	if _, err := owned.CommitOwned(t.Context(), token, kept[19]); !errors.Is(err, stream.ErrNotOwner) {
		t.Errorf("a commit with the token of a lost ownership: %v", err)
	}
}

// failoverPeers: pages that another process has sent before a failover, and that are lost, arrive after it and are
// not delivered, also if the stream has nothing else yet.
func failoverPeers(t *testing.T, p *part) {
	var late []func()
	net := network{pass: func(deliver func()) { late = append(late, deliver) }} // under its lock
	var all []*stream.Stream
	for _, name := range []string{"empty", "kept"} {
		s := ensureWith(t, p.primary, name, stream.Options{})
		all = append(all, s)
	}
	hub, _ := runHub(t, p.pool, stream.HubConfig{Poll: 100 * time.Millisecond, Peers: net.node()})
	listener := net.node() // a process that hears all, and is asked nothing
	received := make(map[int32]func([]byte))
	var appenders []*stream.Appender
	for _, s := range all {
		listener.Listen(s.ID(), func(page []byte) { received[s.ID()](page) })
		appenders = append(appenders, run(t, p.pool, s, stream.AppenderConfig{Hub: hub}))
	}
	kept := appendEach(t, appenders[1], "kept", 5)
	p.lose(t)
	for _, a := range appenders {
		appendEach(t, a, "lost", 3)
	}
	after := p.promote(t)
	if _, err := migrate.EnterHistory(t.Context(), after); err != nil { // before that, nobody can tell the pages from those of now
		t.Fatal(err)
	}

	other, _ := runHub(t, after, stream.HubConfig{Poll: never, NoListen: true, Peers: peersFunc(func(id int32, receive func([]byte)) { received[id] = receive })})
	subs := []*stream.Subscription{subscribe(t, other, all[0], stream.After(0)), subscribe(t, other, all[1], stream.After(kept[4]))}
	for _, sub := range subs {
		if page, err := sub.TryNext(t.Context(), 1); err != nil || len(page) > 0 {
			t.Fatalf("%+v, %v, want nothing", page, err)
		}
	}
	net.mu.Lock()
	deliveries := late
	net.mu.Unlock()
	if len(deliveries) == 0 {
		t.Fatal("no pages were sent")
	}
	for _, deliver := range deliveries {
		deliver()
	}
	for i, sub := range subs {
		first := mustAppend(t, appenders[i], messages("new")...)
		other.Notify(all[i])
		if page := next(t, sub); page[0].Position != first || string(page[0].Payload) != "new" {
			t.Errorf("stream %q: %+v, want the new message at %d", all[i].Name(), page, first)
		}
	}
}

// lookUpWith returns a stream that uses pool, after creating it through maker.
func lookUpWith(t *testing.T, maker, pool *pgxpool.Pool, name string, opts stream.Options) *stream.Stream {
	t.Helper()
	if _, err := stream.Ensure(t.Context(), maker, name, opts); err != nil {
		t.Fatal(err)
	}
	s := lookUp(t, pool, name)
	return s
}

// ownOne returns the token of an owner on the pool, which owns a number until the test ends.
func ownOne(t *testing.T, pool *pgxpool.Pool) (token int64) {
	t.Helper()
	owned := make(chan int64, 1)
	c, err := stream.NewCoordinator(pool, stream.CoordinatorConfig{
		Name: "things", Numbers: 1, Lease: 20 * time.Second,
		Own: func(ctx context.Context, o *stream.Assignment) {
			select {
			case owned <- o.Token:
			default:
			}
			select {
			case <-ctx.Done():
			case <-o.Revoked():
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }() // its error only says that the server is gone
	t.Cleanup(func() { stop(); <-ended })
	select {
	case token = <-owned:
	case <-soon(t).Done():
		t.Fatal("nothing is owned")
	}
	return token
}

// peersFunc hears, and says nothing.
type peersFunc func(id int32, receive func([]byte))

func (f peersFunc) Send(int32, []byte) {}

func (f peersFunc) Listen(id int32, receive func([]byte)) (stop func()) {
	f(id, receive)
	return func() {}
}

// failoverFormer: the standby follows a former primary, and has messages that the new one never got. No reader gets them.
func failoverFormer(t *testing.T, p *part) {
	type state struct {
		s      *stream.Stream
		a      *stream.Appender
		kept   int64
		reader *standby.Reader
	}
	states := make(map[string]*state)
	for name, opts := range storages {
		s := ensureWith(t, p.primary, name, opts)
		a := run(t, p.primary, s, stream.AppenderConfig{})
		states[name] = &state{s: s, a: a, kept: appendMany(t, a, "kept", 1000)}
	}
	p.lose(t)
	other := pgtest.Pair{Primary: p.Primary, Standby: pgtest.Standby(t, p.Primary), Pool: p.primary}
	for _, one := range states {
		appendMany(t, one.a, "lost", 1000)
	}
	other.CatchUp(t)
	after := p.promote(t)
	for name, one := range states {
		one.s, one.reader = lookUp(t, after, name), readerOf(t, after, databaseURL(other.Standby, p.database))
		if all := readPages(t, one.s.WithStandby(one.reader), 100); len(all) != 1000 || one.reader.Stats().Standby == 0 {
			t.Errorf("%s, before a new history begins: %d messages; %+v", name, len(all), one.reader.Stats())
		}
	}
	for name, one := range states {
		hub, _ := runHub(t, after, stream.HubConfig{PageMessages: 100, Standby: one.reader})
		sub := subscribe(t, hub, one.s, stream.After(0))
		catchUp(t, sub, one.s, one.kept)
		last := appendMany(t, notified(t, after, one.s, hub), "new", 1000)
		catchUp(t, sub, one.s, last)
		if all := readPages(t, one.s.WithStandby(one.reader), 100); len(all) != 2000 || string(all[1000].Payload) != "new 0" {
			t.Errorf("%s: %d messages", name, len(all))
		}
		if one.reader.Problem() != "its history is older than that of the primary" {
			t.Errorf("%s: problem %q", name, one.reader.Problem())
		}
	}
}

// databaseURL is the URL of a database of the server.
func databaseURL(server *embedpg.Server, name string) string {
	return strings.Replace(server.URL(), ":///tidewire?", ":///"+name+"?", 1)
}
