package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestStore_Dumped takes dumps with pg_dump under load, one of them while an
// application's ALTER TABLE delays its start. Each restored database has everything that
// was answered before the dump began, no partial append, and accepts further appends.
func TestStore_Dumped(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := os.Stat(filepath.Join(server.BinDir(), program)); err != nil {
			t.Skipf("this PostgreSQL has no %s", program)
		}
	}
	pool := poolOf(t, server.URL())
	if _, err := migrate.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := open(t, pool, eventstore.Config{})
	loading, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var l dumpLedger
	for c := range 4 {
		load.Go(func() { l.append(loading, t, s, c) })
	}
	defer load.Wait()
	defer stop()
	mustExec(t, pool, `CREATE TABLE public.application (n int)`)
	for round, held := range []bool{false, true} {
		waitFor(t, func() bool { return l.count() > 200*(round+1) })
		before := l.count()
		var altering pgx.Tx
		if held {
			var err error
			if altering, err = pool.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := altering.Exec(t.Context(), `ALTER TABLE public.application ADD m int`); err != nil {
				t.Fatal(err)
			}
		}
		dumped := make(chan string, 1)
		go func() { dumped <- dump(t, server.BinDir(), server.URL()) }()
		if held {
			waitFor(t, func() bool { return rotatedBeside(t, pool, s) })
			if err := altering.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		l.checkRestored(t, server.BinDir(), server.URL(), <-dumped, round, before)
	}
}

// rotatedBeside deletes old records of requests while a dump waits, and reports whether
// one waits.
func rotatedBeside(t *testing.T, pool *pgxpool.Pool, s *eventstore.Store) bool {
	var waiting bool
	if err := pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'pg_dump' AND wait_event_type = 'Lock')`).Scan(&waiting); err != nil || !waiting {
		return false
	}
	for range 2 {
		mustExec(t, pool, `UPDATE tidewire.request_window SET since = since - interval '1 h'`)
		mustExec(t, pool, fmt.Sprintf(`SELECT tidewire.fold_requests(%d, '10 min')`, 1<<30+s.ID()))
		// It may fail while a snapshot needs the records.
		pool.Exec(t.Context(), `SELECT tidewire.swap_requests($1, '10 min')`, 1<<30+s.ID())
	}
	return true
}

// dumpLedger is what was answered: each append is a client's request with two
// events.
type dumpLedger struct {
	mu       sync.Mutex
	answered []dumped
}

type dumped struct {
	request  eventstore.RequestID
	position int64
}

func (l *dumpLedger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

func (l *dumpLedger) append(ctx context.Context, t *testing.T, s *eventstore.Store, c int) {
	for n := int64(0); ctx.Err() == nil; n++ {
		p := eventstore.RequestID{Client: fmt.Sprint("client ", c), Sequence: n}
		name := fmt.Sprintf("%d:%d", c, n)
		at, err := s.AppendIfAs(ctx, p, []eventstore.Event{event("A", name), event("B", name)},
			eventstore.Condition{FailIfEventsMatch: eventstore.Tagged(name)})
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		l.mu.Lock()
		l.answered = append(l.answered, dumped{p, at.First})
		l.mu.Unlock()
	}
}

func dump(t *testing.T, bin, from string) string {
	out, err := exec.Command(filepath.Join(bin, "pg_dump"), "--no-owner", "-d", from).Output()
	if err != nil {
		t.Errorf("pg_dump: %v", err)
	}
	return string(out)
}

// checkRestored wants a restored database to have what was answered before the
// dump began, to know those requests again, and to go on after the last event.
func (l *dumpLedger) checkRestored(t *testing.T, bin, from, text string, round, before int) {
	t.Helper()
	name := fmt.Sprint("restored_", round)
	mustExec(t, poolOf(t, from), `CREATE DATABASE `+name)
	to := strings.Replace(from, ":///tidewire?", ":///"+name+"?", 1)
	restore := exec.Command(filepath.Join(bin, "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", to)
	restore.Stdin = strings.NewReader(text)
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	s := open(t, poolOf(t, to), eventstore.Config{})
	all := everything(t, s)
	for i, e := range all {
		if pair := slices.ContainsFunc(all[max(0, i-1):min(len(all), i+2)], func(o eventstore.Event) bool { return o.Type != e.Type && o.Tags[0] == e.Tags[0] }); !pair {
			t.Fatalf("%+v is half of an append", e)
		}
	}
	l.mu.Lock()
	answered := slices.Clone(l.answered[:before])
	l.mu.Unlock()
	for i, a := range answered {
		at, found := slices.BinarySearchFunc(all, a.position, func(e eventstore.Event, p int64) int { return int(e.Position - p) })
		if !found {
			t.Fatalf("what was answered with %d is not in the dump", a.position)
		}
		if i%20 > 0 {
			continue
		}
		again, err := allOf(s.AppendAs(t.Context(), a.request, event("A", all[at].Tags[0]), event("B", all[at].Tags[0])))
		if !errors.Is(err, eventstore.ErrSequenceTooOld) && (err != nil || again[0] != a.position) {
			t.Fatalf("a repetition of %+v was answered %v, %v: want %d", a.request, again, err, a.position)
		}
	}
	last := all[len(all)-1].Position
	if next := mustAppend(t, s, event("Next")); next[0] <= last {
		t.Errorf("position %d after %d", next[0], last)
	}
}
