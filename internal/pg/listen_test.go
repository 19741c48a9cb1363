package pg_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/testkit"
)

// listening is one who listens, until stop.
type listening struct {
	told  chan struct{} // once each connection listens
	heard chan string
	stop  func()
}

func listen(t *testing.T, l func(ctx context.Context, told func(), heard func(string))) *listening {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	u := &listening{told: make(chan struct{}, 100), heard: make(chan string, 100)}
	var running sync.WaitGroup
	running.Go(func() { l(ctx, func() { u.told <- struct{}{} }, func(s string) { u.heard <- s }) })
	u.stop = func() { cancel(); running.Wait() }
	t.Cleanup(u.stop)
	return u
}

// TestListen_OneConnection: all listeners of a pool share one connection. Each gets the
// notifications of its channel, is told after a reconnect, and gets nothing more after it
// has stopped.
func TestListen_OneConnection(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, 4)
	on := func(channel string) *listening {
		return listen(t, func(ctx context.Context, told func(), heard func(string)) {
			pg.Listen(ctx, pool, channel, slog.New(slog.DiscardHandler), told, heard)
		})
	}
	notify := func(channel, payload string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `SELECT pg_notify($1, $2)`, channel, payload); err != nil {
			t.Fatal(err)
		}
	}
	const backends = `FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'`
	one, two, other := on(pg.StreamChannel), on(pg.StreamChannel), on(pg.EventChannel)
	for _, u := range []*listening{one, two, other} {
		<-u.told
	}
	var n int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) `+backends).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d connections listen, %v", n, err)
	}
	notify(pg.StreamChannel, "a")
	notify(pg.EventChannel, "b")
	if a, b, c := <-one.heard, <-two.heard, <-other.heard; a != "a" || b != "a" || c != "b" {
		t.Errorf("heard %q, %q and %q", a, b, c)
	}
	if _, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) `+backends); err != nil {
		t.Fatal(err)
	}
	<-one.told
	<-two.told
	<-other.told
	one.stop()
	notify(pg.StreamChannel, "c")
	if c := <-two.heard; c != "c" {
		t.Errorf("heard %q after another one stopped", c)
	}
	two.stop()
	other.stop()
	if len(one.heard) > 0 {
		t.Errorf("heard %q after it had stopped", <-one.heard)
	}
	testkit.Eventually(t, "PostgreSQL notices that nobody listens", func() bool {
		if err := pool.QueryRow(t.Context(), `SELECT count(*) `+backends).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	late := on(pg.StreamChannel)
	<-late.told
}
