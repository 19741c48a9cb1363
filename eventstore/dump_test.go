package eventstore_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

// program runs one of PostgreSQL's programs.
func program(t *testing.T, name string, args ...string) error {
	t.Helper()
	if said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, said)
	}
	return nil
}

// TestStore_Dumped takes a dump that an application's ALTER TABLE delays, beside appends, and while records of requests are given
// up. The restored database has everything that was answered before the dump began, knows those requests, has no partial append,
// and accepts further appends.
func TestStore_Dumped(t *testing.T) {
	slow(t)
	t.Parallel()
	db := pgtest.Open(t)
	file := filepath.Join(t.TempDir(), "dump")
	if err := program(t, "pg_dump", "--schema-only", "--file="+file, "--dbname="+db.URL); errors.Is(err, exec.ErrNotFound) || err != nil && strings.Contains(err.Error(), "version mismatch") {
		t.Skip(err)
	}
	mustExec(t, db.Pool, `CREATE TABLE public.application (n int)`) // made first, so that the dump locks it first
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	s := open(t, db.Pool, eventstore.Config{})
	answered := make(map[eventstore.RequestID]int64)
	appendSome := func(client string) {
		for n := range int64(50) {
			p := eventstore.RequestID{Client: client, Sequence: n}
			answered[p] = mustAppendAs(t, s, p, event("A", fmt.Sprint(p)), event("B", fmt.Sprint(p)))[0]
		}
	}
	appendSome("before")
	altering := begin(t, db.Pool)
	mustExec(t, altering, `ALTER TABLE public.application ADD m int`)
	dumped := make(chan error, 1)
	go func() { dumped <- program(t, "pg_dump", "--format=custom", "--file="+file, "--dbname="+db.URL) }()
	testkit.Eventually(t, "the dump waits for the lock", func() bool {
		var waiting int
		err := db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_dump' AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err != nil || waiting > 0
	})
	appendSome("beside")
	for range 2 {
		mustExec(t, db.Pool, `UPDATE tidewire.request_window SET since = since - interval '1 h'`)
		mustExec(t, db.Pool, fmt.Sprintf(`SELECT tidewire.fold_requests(%d, '10 min')`, 1<<30+s.ID()))
		// It may fail while a snapshot needs the records.
		db.Pool.Exec(t.Context(), `SELECT tidewire.swap_requests($1, '10 min')`, 1<<30+s.ID())
	}
	if err := altering.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-dumped; err != nil {
		t.Fatal(err)
	}

	to := pgtest.Open(t)
	if err := program(t, "pg_restore", "--exit-on-error", "--dbname="+to.URL, file); err != nil {
		t.Fatal(err)
	}
	restored := open(t, to.Pool, eventstore.Config{})
	all := everything(t, restored)
	at := make(map[int64]eventstore.Event)
	for i, e := range all {
		if at[e.Position] = e; i%2 == 1 && (e.Type != "B" || e.Tags[0] != all[i-1].Tags[0]) {
			t.Fatalf("%+v is half of an append", e)
		}
	}
	for p, position := range answered {
		if p.Client == "beside" {
			continue
		}
		if e := at[position]; e.Type != "A" || e.Tags[0] != fmt.Sprint(p) {
			t.Errorf("%v was answered %d, where the restored database has %+v", p, position, e)
		}
		again, err := allOf(restored.AppendAs(t.Context(), p, event("A", fmt.Sprint(p)), event("B", fmt.Sprint(p))))
		if !errors.Is(err, eventstore.ErrSequenceTooOld) && (err != nil || again[0] != position) {
			t.Errorf("a repetition of %v was answered %v, %v: want %d", p, again, err, position)
		}
	}
	if next, last := mustAppend(t, restored, event("Next")), all[len(all)-1].Position; len(all)%2 > 0 || next[0] <= last {
		t.Errorf("%d events are restored, and position %d comes after %d", len(all), next[0], last)
	}
}
