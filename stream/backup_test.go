package stream_test

import (
	"errors"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// program returns one of PostgreSQL's programs, at least as new as the server.
func program(t *testing.T, db pgtest.DB, name string) string {
	t.Helper()
	var server int
	must(t, db.Pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&server))
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if path, err := osexec.LookPath(name); err == nil {
		found = append(found, path)
	}
	for _, path := range slices.Backward(found) {
		out, err := osexec.Command(path, "--version").Output()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 3 {
			continue
		}
		major, _, _ := strings.Cut(fields[2], ".")
		if n, err := strconv.Atoi(major); err == nil && n >= server {
			return path
		}
	}
	t.Skipf("no %s for PostgreSQL %d", name, server)
	return ""
}

// TestBackup makes a pg_dump wait, with its snapshot, for a lock of another transaction, while offsets and records are rotated, and retention
// drops messages; and restores the dump. Retention continues after it.
func TestBackup(t *testing.T) {
	t.Parallel()
	notShort(t)
	db := setup(t)
	dump, restore := program(t, db, "pg_dump"), program(t, db, "pg_restore")
	ctx := soon(t)
	gs, stopGroups := runGroups(t, db.Pool, stream.GroupsConfig{RotateRows: 300})
	request := stream.RequestID{Client: "p", Sequence: 1}
	offsets := map[string]int64{"none": 0, "one": 1, "two": 2}
	var streams []*stream.Stream
	for name, opts := range storages {
		s := ensureWith(t, db.Pool, name, opts)
		streams = append(streams, s)
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		mustAppendAs(t, a, request, "once")
		mustAppend(t, a, messages("two")...)
		for name, offset := range offsets {
			if _, err := openGroup(t, gs, s, name).Commit(ctx, offset); err != nil {
				t.Fatal(err)
			}
		}
	}
	dropped := ensureNamed(t, db.Pool, "dropped", true)
	mustAppend(t, run(t, db.Pool, dropped, stream.AppenderConfig{}), messages("x")...)
	exec(t, db.Pool, `CREATE TABLE application (id int)`)
	ddl := begin(t, db.Pool, "")
	exec(t, ddl, `ALTER TABLE application ADD COLUMN more int`)
	file := filepath.Join(t.TempDir(), "dump")
	dumped := make(chan error, 1)
	go func() {
		out, err := osexec.CommandContext(ctx, dump, "-Fc", "-f", file, db.URL).CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		dumped <- err
	}()
	awaitLockWaiters(t, db, 1)

	alter(t, db.Pool, dropped, stream.Retention{MaxAge: oldAge})
	for range 3 {
		keepOnce(t, db.Pool)
	}
	if info := inspect(t, dropped); info.Oldest != 1 {
		t.Errorf("beside a dump the oldest became %d", info.Oldest)
	}
	reach(t, db.Pool, streams[0])
	busy := openGroup(t, gs, streams[0], "busy")
	for n, before := int64(1), currentTable(t, db); n%20 > 0 || currentTable(t, db) == before; n++ {
		mustCommit(t, busy, n)
	}
	stopGroups() // the table that is not in use has been cleared
	exec(t, db.Pool, `SELECT tidewire.clear_offsets()`)
	for range 2 {
		for _, s := range streams {
			exec(t, db.Pool, agedSQL, 2*stream.KeepRequests)
			exec(t, db.Pool, agedSharedSQL, 2*stream.KeepRequests)
			must(t, stream.RotateRequests(ctx, db.Pool, lookUp(t, db.Pool, s.Name())))
		}
	}
	commitTx(t, ddl)
	if err := <-dumped; err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	keep(t, db.Pool)
	waitInfo(t, dropped, "messages are dropped after the dump", func(i stream.Info) bool { return i.Oldest > 1 })

	other := pgtest.Open(t)
	if out, err := osexec.CommandContext(ctx, restore, "-d", other.URL, file).CombinedOutput(); err != nil {
		t.Fatalf("pg_restore: %v\n%s", err, out)
	}
	for name := range storages {
		restored := lookUp(t, other.Pool, name)
		groups, err := restored.Groups(ctx)
		if err != nil || len(groups) != len(offsets) {
			t.Errorf("%s: %d groups, %v, want %d", name, len(groups), err, len(offsets))
		}
		for _, g := range groups {
			if g.Offset != offsets[g.Name] {
				t.Errorf("%s: group %q is at %d, want %d", name, g.Name, g.Offset, offsets[g.Name])
			}
		}
		wantRequest(t, run(t, other.Pool, restored, stream.AppenderConfig{}), request, stream.Appended{First: 1, Last: 1})
		wantStored(t, restored, "once, two")
	}
}

// TestPublication: a publication of all tables does not block anything.
func TestPublication(t *testing.T) {
	t.Parallel()
	db := setup(t)
	rows, err := db.Pool.Query(t.Context(), `
SELECT c.relname::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND (n.nspname = 'tidewire' OR c.relname = 'messages') AND c.relreplident <> 'f'
	AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)`)
	if err != nil {
		t.Fatal(err)
	}
	without, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(without) > 0 {
		t.Errorf("tables without a replica identity: %q, %v", without, err)
	}
}

func TestDrop_TakesAllAndFreesTheName(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{Payload: []byte("gone")})
	must(t, stream.Drop(t.Context(), db.Pool, "orders"))
	if err := stream.Drop(t.Context(), db.Pool, "orders"); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Drop again: %v, want ErrNotFound", err)
	}
	if _, err := s.Read(t.Context(), 0, 10); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Read: %v, want ErrNotFound", err)
	}
	if _, err := s.Head(t.Context()); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Head: %v, want ErrNotFound", err)
	}
	fresh := ensureWith(t, db.Pool, "orders", stream.Options{})
	if _, err := a.Append(t.Context(), stream.Message{}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Append to the dropped one: %v, want ErrNotFound", err)
	}
	if head, err := fresh.Head(t.Context()); head != 0 || err != nil || fresh.ID() == s.ID() {
		t.Errorf("new stream of the name: id %d, head %d, %v", fresh.ID(), head, err)
	}
	if sequences := value[int](t, db.Pool, `SELECT count(*) FROM pg_class WHERE relname LIKE 'stream\_1000\_%'`); sequences != 0 {
		t.Errorf("%d relations of the dropped stream are left", sequences)
	}
}

// TestDrop_UnderLoad drops a stream with many appends: each append is stored before
// the drop, or gets ErrNotFound.
func TestDrop_UnderLoad(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	var calling sync.WaitGroup
	stored := newProgress()
	for _, pool := range pools(t, db.URL, 3) {
		a := run(t, pool, s, stream.AppenderConfig{})
		for range 4 {
			calling.Go(func() {
				for {
					if _, err := a.Append(t.Context(), stream.Message{Payload: []byte("x")}); errors.Is(err, stream.ErrNotFound) {
						return
					} else if err != nil {
						t.Error(err)
						return
					}
					stored.add()
				}
			})
		}
	}
	stored.wait(t, 100)
	if err := stream.Drop(t.Context(), db.Pool, "orders"); err != nil {
		t.Error(err)
	}
	calling.Wait()
}

// TestDrop_DoesNotBlockWritersBesideALongReader: a waiting lock request blocks all
// later ones (lock queue), so Drop must not wait.
func TestDrop_DoesNotBlockWritersBesideALongReader(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{})
	reader := begin(t, db.Pool, "")
	exec(t, reader, `LOCK TABLE tidewire.stream_1000 IN ACCESS SHARE MODE`)
	pool, drops := countingPool(t, db.URL, "tidewire.drop_stream")
	var dropping sync.WaitGroup
	dropping.Go(func() {
		if err := stream.Drop(t.Context(), pool, "orders"); err != nil {
			t.Error(err)
		}
	})
	// An append that waited for the drop would also wait for the reader, and so forever.
	ctx := soon(t)
	for n := 0; n < 20 || drops.count.Load() < 3; n++ {
		if _, err := a.Append(ctx, stream.Message{}); err != nil {
			t.Fatalf("append beside a drop that waits: %v", err)
		}
	}
	rollBack(t, reader)
	dropping.Wait()
}
