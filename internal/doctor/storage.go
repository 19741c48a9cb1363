package doctor

import (
	"context"
	"fmt"
)

const deadRowsSQL = `
SELECT relname::text, n_live_tup, n_dead_tup, coalesce(extract(epoch FROM now() - greatest(last_vacuum, last_autovacuum)), -1)::float8
FROM pg_stat_user_tables WHERE schemaname = 'tidewire' AND n_dead_tup > n_live_tup ORDER BY n_dead_tup DESC`

// lookVacuum finds tables with more dead rows than live ones, and more than limits.deadRows, where autovacuum is overdue:
// it starts at 1,000 or 20,000 dead rows for Tidewire's busy tables (migrate/sql), and at a fifth of the rows for others.
func lookVacuum(ctx context.Context, s *session, f *findings) error {
	var name string
	var live, dead, oldest int64
	var ago float64
	err := s.each(ctx, deadRowsSQL, []any{&name, &live, &dead, &ago}, func() {
		if oldest = max(oldest, dead); dead < s.cfg.limits.deadRows || len(f.list) == manyFindings {
			return
		}
		last := "never vacuumed"
		if ago >= 0 {
			last = "vacuumed " + span(ago) + " ago"
		}
		f.add(Warning, fmt.Sprintf("tidewire.%s has %d dead rows and %d live ones, %s", name, dead, live, last), "VACUUM tidewire."+quoted(name)+";").
			Advice = "If that does not help, an old snapshot keeps them: see transactions, prepared, slots and snapshots."
	})
	if err != nil {
		return err
	}
	var unlogged int
	if err := s.QueryRow(ctx, `SELECT count(*) FROM pg_class WHERE relpersistence = 'u' AND relkind = 'r' AND relnamespace = to_regnamespace('tidewire')`).Scan(&unlogged); err != nil {
		return err
	}
	if unlogged > 0 {
		f.add(Error, plural(unlogged, "table")+" of the schema tidewire unlogged: a crash empties them").Advice = "ALTER TABLE … SET LOGGED: \\d+ of psql shows which."
	}
	if len(f.list) == 0 {
		f.ok("no table has too many dead rows")
	}
	return nil
}

const wraparoundSQL = `SELECT datname::text, age(datfrozenxid)::bigint, mxid_age(datminmxid)::bigint FROM pg_database WHERE datallowconn ORDER BY greatest(age(datfrozenxid), mxid_age(datminmxid)) DESC LIMIT 1`

// lookWraparound checks the database with the oldest transaction ids: at the limit it stops all databases of the server.
func lookWraparound(ctx context.Context, s *session, f *findings) error {
	var name string
	var xids, multixacts int64
	if err := s.QueryRow(ctx, wraparoundSQL).Scan(&name, &xids, &multixacts); err != nil {
		return err
	}
	judgeAge(f, name, "transactions", xids, s.settings["autovacuum_freeze_max_age"].number)
	judgeAge(f, name, "multixacts", multixacts, s.settings["autovacuum_multixact_freeze_max_age"].number)
	if len(f.list) == 0 {
		f.ok("the oldest row has seen %d transactions of 2,147,483,647", xids)
	}
	return nil
}

// judgeAge: autovacuum starts at its limit under all settings. 1.5 times the limit means that it does not keep up. At 2^31
// PostgreSQL accepts no writes (https://www.postgresql.org/docs/current/routine-vacuuming.html); an error at half of that
// leaves time to react.
func judgeAge(f *findings, database, what string, age, limit int64) {
	level := OK
	switch {
	case age > 1<<30:
		level = Error
	case age > limit+limit/2:
		level = Warning
	default:
		return
	}
	f.add(level, fmt.Sprintf("database %s has rows that are %d %s old, and autovacuum should begin at %d", database, age, what, limit), "VACUUM (FREEZE);").
		Advice = "In that database, as its owner. At 2,147,483,647 PostgreSQL accepts no writes. An old snapshot may be why: see transactions, prepared, slots and snapshots."
}

// lookIndexes finds incomplete indexes, which a failed REINDEX CONCURRENTLY leaves: they slow down writes and serve no read.
func lookIndexes(ctx context.Context, s *session, f *findings) error {
	var name string
	err := s.each(ctx, `SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
		WHERE c.relnamespace = to_regnamespace('tidewire') AND NOT i.indisvalid AND c.relkind = 'i' ORDER BY 1`, []any{&name}, func() {
		f.add(Warning, "index "+name+" is not valid: reads cannot use it", "REINDEX INDEX CONCURRENTLY "+name+";")
	})
	if err == nil && len(f.list) == 0 {
		f.ok("all are valid")
	}
	return err
}

// lookSize: PostgreSQL removes the log down to max_wal_size, unless something keeps it.
func lookSize(ctx context.Context, s *session, f *findings) error {
	var data int64
	if err := s.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&data); err != nil {
		return err
	}
	var may bool
	if err := s.QueryRow(ctx, `SELECT has_function_privilege('pg_ls_waldir()', 'EXECUTE')`).Scan(&may); err != nil {
		return err
	}
	if !may {
		f.add(Note, fmt.Sprintf("the database has %s; the role %s may not see how large the log is", size(data), s.role), s.grantMonitor())
		return nil
	}
	var log int64
	if err := s.QueryRow(ctx, `SELECT coalesce(sum(size), 0)::bigint FROM pg_ls_waldir()`).Scan(&log); err != nil {
		return err
	}
	text := fmt.Sprintf("the database has %s, the log %s", size(data), size(log))
	most := (s.settings["max_wal_size"].number + s.settings["wal_keep_size"].number) << 20
	if log > 2*most+1<<30 { // max_wal_size is no hard limit
		f.add(Warning, fmt.Sprintf("%s, where max_wal_size and wal_keep_size are %s: something keeps it", text, size(most))).Advice = "A slot, or archive_command: see slots and archiving."
		return nil
	}
	f.ok("%s", text)
	return nil
}

// lookDisk checks the free space of a private PostgreSQL. For other servers, SQL does not tell it.
func lookDisk(_ context.Context, s *session, f *findings) error {
	d := s.cfg.Disk
	if d == nil || d.Total <= 0 {
		f.ok("PostgreSQL does not tell how much space is free: monitor it")
		return nil
	}
	text := fmt.Sprintf("%s of %s are free", size(d.Free), size(d.Total))
	// A full disk stops PostgreSQL. The log may still grow by max_wal_size.
	switch {
	case d.Free < s.settings["max_wal_size"].number<<20:
		f.add(Error, text+", less than the log may grow by").Advice = "Make room: tidewire stream retain NAME --max-age, or a larger disk."
	case d.Free < d.Total/10:
		f.add(Warning, text).Advice = "Make room: tidewire stream retain NAME --max-age, or a larger disk."
	default:
		f.ok("%s", text)
	}
	return nil
}

func lookEncoding(_ context.Context, s *session, f *findings) error {
	server, client := s.settings["server_encoding"].value, s.settings["client_encoding"].value
	switch {
	case server != "UTF8":
		f.add(Warning, "the database's encoding is "+server+": names and keys in other scripts are rejected",
			fmt.Sprintf("CREATE DATABASE %s ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0;", quoted(s.database+"_utf8"))).
			Advice = "Then move what is there with pg_dump and psql. An encoding cannot be changed."
	case client != "UTF8":
		f.add(Warning, "client_encoding is "+client+" for this role: text that was written in one encoding is not found in another", s.setForRole("client_encoding", "UTF8"))
	default:
		f.ok("UTF8")
	}
	return nil
}

// lookCollation: an upgrade of the operating system's libraries can change the sort order of text. Then older
// indexes miss rows (https://www.postgresql.org/docs/current/sql-alterdatabase.html).
func lookCollation(ctx context.Context, s *session, f *findings) error {
	if s.major() < 15 {
		f.ok("PostgreSQL %d does not record the version", s.major())
		return nil
	}
	var recorded, actual string
	err := s.QueryRow(ctx, `SELECT coalesce(datcollversion, ''), coalesce(pg_database_collation_actual_version(oid), '') FROM pg_database WHERE datname = current_database()`).Scan(&recorded, &actual)
	if err != nil {
		return err
	}
	if recorded != actual && recorded != "" && actual != "" {
		f.add(Warning, fmt.Sprintf("indexes on text were made with version %s of the collation, and %s is installed: they may miss rows", recorded, actual),
			"REINDEX DATABASE "+quoted(s.database)+";", "ALTER DATABASE "+quoted(s.database)+" REFRESH COLLATION VERSION;").
			Advice = "REINDEX locks each table while it runs; do both as the owner."
		return nil
	}
	f.ok("as it was when the indexes were made")
	return nil
}
