package stream_test

import (
	"context"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/stream"
)

// program returns one of PostgreSQL's programs, at least as new as the server.
func program(t *testing.T, db pgtest.DB, name string) string {
	t.Helper()
	var server int
	if err := db.Pool.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&server); err != nil {
		t.Fatal(err)
	}
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

// TestBackup makes a pg_dump wait, with its snapshot, for a lock of another
// transaction, while offsets and records are rotated, and restores the dump.
func TestBackup(t *testing.T) {
	t.Parallel()
	ensureBoth(t, func(t *testing.T, db pgtest.DB, s *stream.Stream) {
		dump, restore := program(t, db, "pg_dump"), program(t, db, "pg_restore")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		request := stream.RequestID{Client: "p", Sequence: 1}
		stored, err := a.AppendAs(ctx, request, stream.Message{Payload: []byte("once")})
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, a, stream.Message{Payload: []byte("two")})
		gs, stopGroups := runGroups(t, db.Pool, stream.GroupsConfig{RotateRows: 300})
		offsets := map[string]int64{"none": 0, "one": 1, "two": 2}
		for name, offset := range offsets {
			if _, err := openGroup(t, gs, s, name).Commit(ctx, offset); err != nil {
				t.Fatal(err)
			}
		}

		exec(t, db.Pool, `CREATE TABLE application (id int)`)
		ddl := begin(t, db.Pool, "")
		if _, err := ddl.Exec(ctx, `ALTER TABLE application ADD COLUMN more int`); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "dump")
		dumped := make(chan error, 1)
		go func() {
			out, err := osexec.CommandContext(ctx, dump, "-Fc", "-f", file, db.URL).CombinedOutput()
			if err != nil {
				t.Logf("%s", out)
			}
			dumped <- err
		}()
		testkit.Eventually(t, "the dump to wait", func() bool {
			return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'application'::regclass)`)
		})

		reach(t, db.Pool, s)
		busy := openGroup(t, gs, s, "busy")
		for n, rotated := int64(1), false; !rotated; n++ {
			if _, err := busy.Commit(ctx, n); err != nil {
				t.Fatal(err)
			}
			if n%100 == 0 {
				if err := db.Pool.QueryRow(ctx, `SELECT current = 1 FROM tidewire.group_rotation`).Scan(&rotated); err != nil {
					t.Fatal(err)
				}
			}
		}
		stopGroups() // the table that is not in use has been cleared
		exec(t, db.Pool, `SELECT tidewire.clear_offsets()`)
		for range 2 {
			exec(t, db.Pool, `UPDATE tidewire.request_window SET since = since - interval '1 day'`)
			exec(t, db.Pool, `SELECT tidewire.fold_requests($1, '1 hour')`, s.ID())
			exec(t, db.Pool, `SELECT tidewire.swap_requests($1, '1 hour')`, s.ID())
			exec(t, db.Pool, agedSharedSQL, 2*stream.KeepRequests)
			if err := stream.RotateRequests(ctx, db.Pool, s); err != nil {
				t.Fatal(err)
			}
		}
		if err := ddl.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-dumped; err != nil {
			t.Fatalf("pg_dump: %v", err)
		}

		other := pgtest.Open(t)
		if out, err := osexec.CommandContext(ctx, restore, "-d", other.URL, file).CombinedOutput(); err != nil {
			t.Fatalf("pg_restore: %v\n%s", err, out)
		}
		restored, err := stream.Lookup(ctx, other.Pool, s.Name())
		if err != nil {
			t.Fatal(err)
		}
		groups, err := restored.Groups(ctx)
		if err != nil || len(groups) != len(offsets) {
			t.Errorf("%d groups, %v, want %d", len(groups), err, len(offsets))
		}
		for _, g := range groups {
			if g.Offset != offsets[g.Name] {
				t.Errorf("group %q is at %d, want %d", g.Name, g.Offset, offsets[g.Name])
			}
		}
		b := run(t, other.Pool, restored, stream.AppenderConfig{})
		if again, err := b.AppendAs(ctx, request, stream.Message{Payload: []byte("once")}); err != nil || again.First != stored.First || !again.Duplicate {
			t.Errorf("the request once more: %+v, %v, want %+v as at first", again, err, stored)
		}
		if msgs, err := restored.Read(ctx, 0, 10); err != nil || len(msgs) != 2 {
			t.Errorf("%d messages, %v, want 2", len(msgs), err)
		}
	})
}

// TestRetentionWorker_WaitsForDumps: a segment that a dump has not locked yet is not
// dropped.
func TestRetentionWorker_WaitsForDumps(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	exec(t, db.Pool, `SELECT tidewire.take_positions($1, 'tidewire.stream_1000_position_seq', 30000, 1, 1)`, s.ID())
	exec(t, db.Pool, `INSERT INTO tidewire.stream_1000 (position, payload) SELECT n, 'x' FROM generate_series(1, 30000) AS n`)
	cfg, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["application_name"] = "pg_dump"
	dump, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer dump.Close(context.Background())
	drop := func() (dropped int) {
		t.Helper()
		if err := db.Pool.QueryRow(t.Context(), `SELECT tidewire.drop_segments($1, 16384)`, s.ID()).Scan(&dropped); err != nil {
			t.Fatal(err)
		}
		return dropped
	}
	if n := drop(); n != 0 {
		t.Errorf("%d segments dropped beside a dump", n)
	}
	if err := dump.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the drop", func() bool { return drop() > 0 })
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

// TestRetentionWorker_BesidePgDump: a pg_dump that waits for another transaction's lock, and
// has not locked the segments in its snapshot yet, succeeds beside retention; retention
// continues after it.
func TestRetentionWorker_BesidePgDump(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	dump := program(t, db, "pg_dump")
	ctx := soon(t)
	exec(t, db.Pool, `SELECT tidewire.take_positions($1, 'tidewire.stream_1000_position_seq', 30000, 1, 1)`, s.ID())
	exec(t, db.Pool, `INSERT INTO tidewire.stream_1000 (position, payload) SELECT n, 'x' FROM generate_series(1, 30000) AS n`)
	before := inspect(t, s)
	// pg_dump locks in the order of names: it comes to these before the segments.
	ddl := begin(t, db.Pool, pgx.ReadCommitted)
	exec(t, ddl, `ALTER TABLE tidewire.group_rotation ADD COLUMN more int`)
	dumped := make(chan error, 1)
	file := filepath.Join(t.TempDir(), "dump")
	go func() {
		out, err := osexec.CommandContext(ctx, dump, "-Fc", "-f", file, db.URL).CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		dumped <- err
	}()
	testkit.Eventually(t, "the dump to wait", func() bool {
		return value[bool](t, db.Pool, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'tidewire.group_rotation'::regclass)`)
	})
	alter(t, db.Pool, s, stream.Retention{MaxAge: time.Millisecond})
	pool, looks := countingPool(t, db.URL, "tidewire.drop_expired")
	keep(t, pool)
	testkit.Eventually(t, "attempts to drop", func() bool { return looks.count.Load() >= 5 })
	if info := inspect(t, s); info.Oldest != before.Oldest {
		t.Errorf("beside a dump the oldest became %d", info.Oldest)
	}
	if err := ddl.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-dumped; err != nil {
		t.Errorf("pg_dump: %v", err)
	}
	waitInfo(t, s, "not dropped after the dump", func(i stream.Info) bool { return i.Oldest > 16384 })
}
