package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// TestAppenders_LostAnswers breaks connections, before and after what they send.
// Answered messages are stored at the returned positions, and nothing is stored
// twice.
func TestAppenders_LostAnswers(t *testing.T) {
	t.Parallel()
	db := setup(t)
	streams, appenders := several(t, db, cutPool(t, db, randomPlan(1, 3000)), 12)
	var appending sync.WaitGroup
	positions := make([]map[string]int64, len(streams))
	for i, a := range appenders {
		positions[i] = make(map[string]int64)
		appending.Go(func() {
			for n := range 15 {
				payload := fmt.Sprint("message ", n)
				first, err := firstOf(a.Append(context.Background(), messages(payload)...))
				if err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
				positions[i][payload] = first
			}
		})
	}
	appending.Wait()
	for i, s := range streams {
		all := everything(t, s)
		for _, m := range all {
			if positions[i][string(m.Payload)] != m.Position {
				t.Errorf("stream %d: %q is at %d, and was said to be at %d", i, m.Payload, m.Position, positions[i][string(m.Payload)])
			}
		}
		if len(all) != 15 {
			t.Errorf("stream %d: %d messages, want 15", i, len(all))
		}
	}
}

// TestAppenders_SessionsEnd repeatedly terminates sessions that write.
func TestAppenders_SessionsEnd(t *testing.T) {
	t.Parallel()
	db := setup(t)
	streams, appenders := several(t, db, smallPool(t, db, 8), 12)
	stored := make(chan struct{}, 1) // a clock would let a slow machine store nothing in between
	var ending, appending sync.WaitGroup
	ending.Go(func() {
		for range stored {
			exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'tidewire writer' AND pid <> pg_backend_pid()`)
		}
	})
	for i, a := range appenders {
		appending.Go(func() {
			for n := range 20 {
				if _, err := a.Append(context.Background(), messages(fmt.Sprint(n))...); err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
				pg.Signal(stored)
			}
		})
	}
	appending.Wait()
	close(stored)
	ending.Wait()
	for i, s := range streams {
		for n, m := range everything(t, s) {
			if string(m.Payload) != fmt.Sprint(n) {
				t.Fatalf("stream %d: message %d is %s", i, n, m.Payload)
			}
		}
	}
}

// TestAppenders_OneIsAbandoned: an Appender is abandoned before and while its round is
// written. The other Appenders in the round are not affected.
func TestAppenders_OneIsAbandoned(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	streams, appenders := several(t, db, pool, 5)
	giveBack := occupySessions(t, pool)
	all := submitAll(t, appenders, "one")
	one := make(chan error, 1)
	if err := appenders[3].Submit(t.Context(), messages("two"), func(_ stream.Appended, err error) { one <- err }); err != nil {
		t.Fatal(err)
	}
	appenders[3].Abandon()
	if err := <-one; !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("abandoned before it was written: %v", err)
	}
	giveBack()
	all.Wait()
	for i, err := range all.errs {
		if i != 3 && err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	wantStored(t, streams[3], "")

	// The table of the first makes its transaction last until the latch opens.
	exec(t, db.Pool, `CREATE TABLE public.latch (open boolean)`)
	exec(t, db.Pool, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM public.latch) LOOP PERFORM pg_sleep(0.01); END LOOP; RETURN NEW; END $$`)
	exec(t, db.Pool, fmt.Sprintf(`CREATE TRIGGER hold BEFORE INSERT ON tidewire.stream_%d FOR EACH ROW EXECUTE FUNCTION hold()`, streams[1].ID()))
	giveBack = occupySessions(t, pool)
	all = submitAll(t, []*stream.Appender{appenders[0], appenders[1], appenders[2], appenders[4]}, "two")
	giveBack()
	testkit.Eventually(t, "the round to be under way", func() bool {
		return value[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) > 0
	})
	if err := appenders[4].Submit(t.Context(), messages("three"), func(_ stream.Appended, err error) { one <- err }); err != nil {
		t.Fatal(err)
	}
	appenders[4].Abandon()
	if err := <-one; err != nil && !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("abandoned after the round had begun: %v", err)
	}
	exec(t, db.Pool, `INSERT INTO public.latch VALUES (true)`)
	all.Wait()
	if all.errs[0] != nil || all.errs[1] != nil || all.errs[2] != nil {
		t.Errorf("beside one that was abandoned: %v", all.errs)
	}
	if err := all.errs[3]; err != nil && !errors.Is(err, stream.ErrOutcomeUnknown) { // it may have been stored before
		t.Errorf("abandoned while it was written: %v", err)
	}
	wantStored(t, streams[2], "one, two")
}

// TestAppenders_StopBesideOthers: a stopped Appender has stored all accepted
// messages, while the others continue.
func TestAppenders_StopBesideOthers(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	streams, appenders := several(t, db, pool, 4)
	last := ensureWith(t, db.Pool, "last", stream.Options{})
	for n := range 20 {
		all := submitAll(t, appenders, fmt.Sprint(n))
		a, stop := start(t, pool, last, stream.AppenderConfig{})
		own := submitAll(t, []*stream.Appender{a}, fmt.Sprint(n))
		stop()
		if own.Wait(); own.errs[0] != nil {
			t.Errorf("stopped: %v", own.errs[0])
		}
		if _, err := a.Append(t.Context(), messages("late")...); !errors.Is(err, stream.ErrClosed) {
			t.Errorf("after the stop: %v", err)
		}
		all.Wait()
	}
	for _, s := range append(streams, last) {
		if n := len(everything(t, s)); n != 20 {
			t.Errorf("stream %s has %d messages, want 20", s.Name(), n)
		}
	}
}
