package stream_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// ensureOn migrates the database and returns a stream of that name.
func ensureOn(t *testing.T, pool *pgxpool.Pool, name string) *stream.Stream {
	t.Helper()
	if _, err := migrate.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s, err := stream.Ensure(t.Context(), pool, name, stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const listenersSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`

// waitListeners waits until want connections listen.
func waitListeners(t *testing.T, db pgtest.DB, want int) {
	t.Helper()
	for listeners := -1; listeners != want; time.Sleep(time.Millisecond) {
		if err := db.Pool.QueryRow(t.Context(), listenersSQL).Scan(&listeners); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHub_HearsOfOtherProcesses learns of the message only by an announcement.
func TestHub_HearsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	nodes := pools(t, db.URL, 2)
	here, _ := runHub(t, nodes[0], stream.HubConfig{Poll: never, Announce: true})
	there, _ := runHub(t, nodes[1], stream.HubConfig{Poll: never})
	sub := subscribe(t, there, s, stream.After(0))
	waitListeners(t, db, 1)
	a := notified(t, nodes[0], s, here)
	for n := range 20 {
		first := mustAppend(t, a, stream.Message{})
		if page := next(t, sub); len(page) != 1 || page[0].Position != first {
			t.Errorf("message %d: page %v, want position %d", n, page, first)
		}
	}
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
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
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
		time.Sleep(100 * time.Millisecond)
		waitListeners(t, db, 1) // for the watcher
		stop()
		stop()
		waitListeners(t, db, 0)
	}
}

// TestHub_AnnouncesSeldom notifies a Hub of many streams as fast as it can.
func TestHub_AnnouncesSeldom(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool, announced := countingPool(t, db.URL, "pg_notify")
	const every = 20 * time.Millisecond
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true, Announce: true, AnnounceEvery: every})
	all := []*stream.Stream{ensureOn(t, db.Pool, "a"), ensureOn(t, db.Pool, "b"), ensureOn(t, db.Pool, "c")}
	begun := time.Now()
	for time.Since(begun) < 10*every || announced.count.Load() == 0 { // the first one needs a connection
		for _, s := range all {
			h.Notify(s)
		}
		time.Sleep(time.Millisecond)
	}
	most := int64(time.Since(begun)/every) + 1
	n := announced.count.Load()
	if n > most {
		t.Errorf("%d announcements, want at most %d", n, most)
	}
	for range 5 { // one may be on its way, and one may follow it
		time.Sleep(every)
	}
	if now := announced.count.Load(); now > n+2 {
		t.Errorf("%d announcements of what was announced", now-n)
	}
}

// TestHub_AnnouncesFewTogether: while fewer than three commits wait, they wait
// twice as long.
func TestHub_AnnouncesFewTogether(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool, announced := countingPool(t, db.URL, "pg_notify")
	const every = 20 * time.Millisecond
	h, _ := runHub(t, pool, stream.HubConfig{Poll: never, NoListen: true, Announce: true, AnnounceEvery: every})
	s := ensureOn(t, db.Pool, "a")
	begun := time.Now()
	for range 20 {
		h.Notify(s)
		time.Sleep(every - every/10)
	}
	most := int64(time.Since(begun)/(2*every)) + 1
	if n := announced.count.Load(); n == 0 || n > most {
		t.Errorf("%d announcements, want 1 to %d", n, most)
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
	select { // of the Hub's first poll, if it came after Watch
	case <-changed:
	case <-time.After(100 * time.Millisecond):
	}
	quiet.Notify(s)
	quiet.Notify(s)
	<-changed
	<-other
	stop()
	quiet.Notify(s)
	<-other
	select {
	case <-changed:
		t.Error("signalled after stop")
	default:
	}
}
