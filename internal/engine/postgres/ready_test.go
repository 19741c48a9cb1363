package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadiness_Coalesced: there is one write a second, with any number of
// callers.
func TestReadiness_Coalesced(t *testing.T) {
	t.Parallel()
	var probes atomic.Int32
	r := &readiness{
		probe:   func(context.Context) error { probes.Add(1); return nil },
		stalled: func() error { return nil },
	}
	began := time.Now()
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 2000 {
				if err := r.check(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
	if most := 1 + int32(time.Since(began)/probeEvery); probes.Load() > most {
		t.Errorf("%d probes, want %d at most", probes.Load(), most)
	}
	r.end()
	if err := r.check(t.Context()); err == nil {
		t.Error("it is ready after its end")
	}
}

// TestReadiness_Probe: a probe that does not end is given up, and callers need not
// wait for it.
func TestReadiness_Probe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &readiness{
			probe:   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			stalled: func() error { return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.check(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := r.check(t.Context()); err == nil || !strings.Contains(err.Error(), "does not commit within") {
			t.Errorf("got %v", err)
		}
	})
}

// TestStallWatch: a writer that has answered nothing for some seconds is stalled, and
// the server is not ready if more than half of the busy writers are.
func TestStallWatch(t *testing.T) {
	t.Parallel()
	writers := make([]progress, 4)
	w := &stallWatch{all: func(yield func(*progress)) {
		for i := range writers {
			yield(&writers[i])
		}
	}}
	now := time.Now()
	look := func(after time.Duration, ready bool) {
		t.Helper()
		now = now.Add(after)
		w.look(now)
		if err := w.stalled(); (err == nil) != ready {
			t.Errorf("got %v", err)
		}
	}
	look(0, true) // nothing to do
	for i := range 3 {
		writers[i].begin()
	}
	look(time.Hour, true) // seen for the first time
	look(stallAfter-1, true)
	writers[0].end()
	writers[0].begin()
	writers[1].end()
	look(1, true) // one of two
	writers[1].begin()
	look(stallAfter, false)
	for i := range 3 {
		writers[i].end()
	}
	look(0, true)
}

// TestWriteProbe_LostConnection: a server that can connect is ready, even if the
// connection of the last probe was lost.
func TestWriteProbe_LostConnection(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	w := newWriteProbe(db.URL)
	defer w.close()
	for range 3 {
		if err := w.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Pool.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, w.conn.PgConn().PID()); err != nil {
			t.Fatal(err)
		}
	}
}
