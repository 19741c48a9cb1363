package stream_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// waitListeners waits until want connections listen.
func waitListeners(t *testing.T, db pgtest.DB, want int) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprint(want, " connections listen"), func() bool {
		return value[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`) == want
	})
}

// TestHub_ListensAgain ends the connection that listens: messages committed
// meanwhile are found, and later announcements are received.
func TestHub_ListensAgain(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never})
	sub := subscribe(t, h, s, stream.After(0))
	waitListeners(t, db, 1)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Until the commit no connection can listen again.
	if _, err := tx.Exec(t.Context(), `INSERT INTO tidewire.stream_1000 (position, payload) VALUES (nextval('tidewire.stream_1000_position_seq'), '')`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()`); err != nil {
		t.Fatal(err)
	}
	must(t, tx.Commit(t.Context()))
	if page := next(t, sub); len(page) != 1 {
		t.Errorf("page %v, want one message", page)
	}
	if _, err := db.Pool.Exec(t.Context(), `INSERT INTO tidewire.stream_1000 (position, payload) VALUES (nextval('tidewire.stream_1000_position_seq'), '')`); err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{"", "x", "x y", "x 1000"} {
		if _, err := db.Pool.Exec(t.Context(), `SELECT pg_notify('tidewire_stream', $1)`, payload); err != nil {
			t.Fatal(err)
		}
	}
	if page := next(t, sub); len(page) != 1 || page[0].Position != 2 {
		t.Errorf("page %v, want position 2", page)
	}
}

// TestHub_ListensOnlyForSomebody counts the connections that listen.
func TestHub_ListensOnlyForSomebody(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{IdleTimeout: 50 * time.Millisecond, Poll: never})
	for range 2 {
		sub := subscribe(t, h, s, stream.After(0))
		_, stop := h.Watch(s)
		waitListeners(t, db, 1)
		sub.Close()
		sub.Close()
		waitListeners(t, db, 1) // for the watcher
		stop()
		stop()
		waitListeners(t, db, 0)
	}
}

// TestHub_AnnouncesSeldom: a Hub announces at once, and then at most once in AnnounceEvery, however many commits come.
func TestHub_AnnouncesSeldom(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool, announced := countingPool(t, db.URL, "pg_notify")
	h, stop := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true, Announce: true, AnnounceEvery: time.Hour})
	all := []*stream.Stream{ensureOn(t, db.Pool, "a"), ensureOn(t, db.Pool, "b"), ensureOn(t, db.Pool, "c")}
	h.Notify(all[0])
	testkit.Eventually(t, "an announcement", func() bool { return announced.count.Load() == 1 })
	for range 1000 {
		for _, s := range all {
			h.Notify(s)
		}
	}
	stop()
	if n := announced.count.Load(); n != 1 {
		t.Errorf("%d announcements, want one", n)
	}
}

func TestWatch_Signals(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: 10 * time.Millisecond, NoListen: true})
	changed, stop := h.Watch(s)
	defer stop()
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), stream.Message{}) // by the poll alone
	<-changed
	quiet, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never, NoListen: true})
	changed, stop = quiet.Watch(s)
	other, stopOther := quiet.Watch(s)
	defer stopOther()
	quiet.Notify(s)
	quiet.Notify(s)
	<-changed
	<-other
	stop()
	select { // of the Hub's first poll, if it came after Watch
	case <-changed:
	default:
	}
	quiet.Notify(s)
	<-other
	select {
	case <-changed:
		t.Error("signalled after stop")
	default:
	}
}

// TestHub_NotAnnounced: commits of which the other processes got no notification are in the log.
func TestHub_NotAnnounced(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool := poolWith(t, db.URL, func(*pgxpool.Config) {})
	var log testkit.Log
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true, Announce: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	pool.Close()
	h.Notify(s)
	testkit.Eventually(t, "the log has it", func() bool { return log.Count("commits not announced") > 0 })
}

// TestFollower: the process's own messages are in memory, in order and once, and the stream
// need not be read; for other messages the Follower says that it has to be read.
func TestFollower(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never, NoListen: true})
	told := make(chan int64, 100)
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h, OnCommit: func(last int64) { told <- last }})
	store := func(msgs ...stream.Message) {
		t.Helper()
		first := mustAppend(t, a, msgs...)
		for last := int64(0); last < first; { // the Hub knows by then
			last = <-told
		}
	}
	f := h.Follow(s)
	defer f.Close()
	recent := func(after int64, limit int, want ...string) (ask bool) {
		t.Helper()
		page, ask := f.Recent(after, limit)
		var got []string
		for i, m := range page {
			if m.Position != after+int64(i)+1 {
				t.Errorf("after %d: message %d has position %d", after, i, m.Position)
			}
			got = append(got, string(m.Payload))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after %d: %q, want %q", after, got, want)
		}
		return ask
	}
	if !recent(0, 10) {
		t.Error("a new Follower need not read")
	}
	if recent(0, 10) || f.Hinted() {
		t.Error("told to read twice")
	}
	for n := range 3 {
		store(messages(fmt.Sprint(n))...)
	}
	<-f.Changed()
	if recent(0, 2, "0", "1") || recent(1, 1, "1") || recent(1, 10, "1", "2") || recent(3, 10) || f.Hinted() {
		t.Error("told to read what is at hand, or there is none")
	}
	if !recent(1, 10) {
		t.Error("what was forgotten need not be read")
	}
	store(stream.Message{Headers: []byte(`{"a":1}`), Payload: []byte("3")}) // PostgreSQL normalises headers
	if !recent(3, 10) {
		t.Error("a message with headers need not be read")
	}
	store(messages("4")...)
	if recent(4, 10, "4"); !recent(3, 10) {
		t.Error("a message before what is at hand need not be read")
	}
	f.Hinted()
	h.Notify(s)
	if !f.Hinted() || f.Hinted() {
		t.Error("a notification is not reported once")
	}
	for range 3 {
		store(stream.Message{Payload: make([]byte, 400<<10)})
	}
	if !recent(5, 10) {
		t.Error("more than is kept need not be read")
	}
}

// TestFollower_SubscriptionReadsFirst: a Follower learns of another process's messages, also
// if a subscription has read them.
func TestFollower_SubscriptionReadsFirst(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	elsewhere := run(t, pools(t, db.URL, 1)[0], s, stream.AppenderConfig{})
	for n := range int64(3) {
		h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never, NoListen: true}) // a new one, which has not seen the end
		f := h.Follow(s)
		defer f.Close()
		f.Hinted()
		mustAppend(t, elsewhere, messages("x")...)
		sub := subscribe(t, h, s, stream.After(n))
		next(t, sub)
		sub.Close()
		<-f.Changed()
		if page, _ := f.Recent(n, 1); len(page) != 1 || page[0].Position != n+1 {
			t.Fatalf("message %d is not at hand: %+v", n+1, page)
		}
	}
}

// TestHub_WatchKeepsNothing: messages of a stream that is only watched are not kept in
// memory: a later subscription reads them from PostgreSQL.
func TestHub_WatchKeepsNothing(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	pool, reads := countingPool(t, db.URL, "AS candidate")
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true})
	_, stop := h.Watch(s)
	defer stop()
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h})
	for range 5 {
		mustAppend(t, a, messages("x")...)
	}
	if page := next(t, subscribe(t, h, s, stream.After(0))); len(page) != 5 || reads.count.Load() == 0 {
		t.Errorf("%d messages, %d reads; want 5, and at least one", len(page), reads.count.Load())
	}
}
