package stream_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

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
	must(t, appenders[3].Submit(t.Context(), messages("two"), func(_ stream.Appended, err error) { one <- err }))
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
	open := latch(t, db, streams[1]) // its transaction lasts until that
	giveBack = occupySessions(t, pool)
	all = submitAll(t, []*stream.Appender{appenders[0], appenders[1], appenders[2], appenders[4]}, "two")
	giveBack()
	testkit.Eventually(t, "the round is under way", func() bool {
		return value[int](t, db.Pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`) > 0
	})
	must(t, appenders[4].Submit(t.Context(), messages("three"), func(_ stream.Appended, err error) { one <- err }))
	appenders[4].Abandon()
	if err := <-one; err != nil && !errors.Is(err, stream.ErrOutcomeUnknown) {
		t.Errorf("abandoned after the round had begun: %v", err)
	}
	open()
	all.Wait()
	if all.errs[0] != nil || all.errs[1] != nil || all.errs[2] != nil {
		t.Errorf("beside one that was abandoned: %v", all.errs)
	}
	if err := all.errs[3]; err != nil && !errors.Is(err, stream.ErrOutcomeUnknown) { // it may have been stored before
		t.Errorf("abandoned while it was written: %v", err)
	}
	wantStored(t, streams[2], "one, two")
}

// TestAppenders_AbandonedBesideAFullRound: other Appenders have filled the open round, and
// nothing is written. Submit and Stop of an abandoned Appender still return.
func TestAppenders_AbandonedBesideAFullRound(t *testing.T) {
	t.Parallel()
	notShort(t)
	db := setup(t)
	pool := smallPool(t, db, 8)
	_, appenders := several(t, db, pool, 40)
	a, stop := start(t, pool, ensureOn(t, db.Pool, "own"), stream.AppenderConfig{})
	submitAll(t, append(appenders, a), "warm").Wait()
	giveBack := occupySessions(t, pool)
	big := stream.Message{Payload: bytes.Repeat([]byte("x"), 250_000)}
	var others, mine sync.WaitGroup
	for _, b := range appenders {
		others.Go(func() {
			if _, err := b.Append(context.Background(), big); err != nil {
				t.Error(err)
			}
		})
	}
	var calling sync.WaitGroup
	for range 50 { // the later ones wait for room
		calling.Add(1)
		mine.Go(func() {
			calling.Done()
			_, err := a.Append(context.Background(), messages("mine")...)
			if !errors.Is(err, stream.ErrOutcomeUnknown) && !errors.Is(err, stream.ErrClosed) {
				t.Errorf("abandoned: %v", err)
			}
		})
	}
	calling.Wait()
	a.Abandon()
	stop()
	mine.Wait()
	giveBack()
	others.Wait()
}

// TestAppenders_RoundIsRefusedAtOnce: PostgreSQL rejects the round's statement when it is
// prepared. Every caller gets the error, as if each had written alone.
func TestAppenders_RoundIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	db := setup(t)
	role := newRole(t, db, "")
	pool := poolWith(t, db.URL, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["role"], cfg.MaxConns = role, 8 })
	_, appenders := several(t, db, pool, 5)
	exec(t, db.Pool, `REVOKE USAGE ON SCHEMA tidewire FROM `+role)
	giveBack := occupySessions(t, pool)
	all := submitAll(t, appenders, "x")
	giveBack()
	all.Wait()
	for i, err := range all.errs {
		if err == nil {
			t.Errorf("appender %d has stored something", i)
		}
	}
}

// TestAppenders_SlowCallback: a callback is slow, while more entries are handed back to
// its Appender. The Appender holds no session meanwhile: other streams continue, on a
// pool that lends one session.
func TestAppenders_SlowCallback(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 2)
	streams, appenders := several(t, db, pool, 3)
	release := make(chan struct{})
	var done sync.WaitGroup
	submit := func(msgs []stream.Message, call func()) {
		done.Add(1)
		err := appenders[0].Submit(t.Context(), msgs, func(_ stream.Appended, err error) {
			defer done.Done()
			if err != nil {
				t.Error(err)
			}
			call()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	entered := make(chan struct{})
	submit(messages("1"), func() { close(entered); <-release })
	<-entered
	for n := range 20 {
		others := submitAll(t, appenders[1:], "other")
		if n < 5 {
			submit(messages("2"), func() {})
		}
		if n == 3 {
			submit(make([]stream.Message, 300), func() {})
		}
		others.Wait()
		for _, err := range others.errs {
			if err != nil {
				t.Error(err)
			}
		}
	}
	close(release)
	done.Wait()
	if n := len(everything(t, streams[0])); n != 306 {
		t.Errorf("%d messages, want 306", n)
	}
}

// TestAppenders_SlowTable: inserts into one stream block until the other streams are
// stored.
func TestAppenders_SlowTable(t *testing.T) {
	t.Parallel()
	notShort(t)
	db := setup(t)
	streams, appenders := several(t, db, smallPool(t, db, 8), 6)
	open := latch(t, db, streams[1])
	all := submitAll(t, appenders, "first")
	others := append(append([]*stream.Appender{}, appenders[0]), appenders[2:]...)
	for range 3 {
		more := submitAll(t, others, "more")
		more.Wait()
		for i, err := range more.errs {
			if err != nil {
				t.Errorf("%d of the others: %v", i, err)
			}
		}
	}
	open()
	all.Wait()
	for i, s := range streams {
		if all.errs[i] != nil {
			t.Errorf("stream %d: %v", i, all.errs[i])
		}
		if want := "first, more, more, more"; i == 1 {
			wantStored(t, s, "first")
		} else {
			wantStored(t, s, want)
		}
	}
}

// TestAppenders_OneOfARoundCallsBackForLong: the same when one transaction has stored all
// batches, and one goroutine begins the callbacks.
func TestAppenders_OneOfARoundCallsBackForLong(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	_, appenders := several(t, db, pool, 40)
	giveBack := occupySessions(t, pool)
	release := make(chan struct{})
	defer close(release)
	for _, a := range appenders[:20] {
		must(t, a.Submit(t.Context(), messages("blocks"), func(stream.Appended, error) { <-release }))
	}
	others := submitAll(t, appenders[20:], "goes on")
	giveBack()
	others.Wait()
}
