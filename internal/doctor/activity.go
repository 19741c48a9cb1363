package doctor

import (
	"context"
	"fmt"
)

// manyFindings is how many findings of a kind are reported separately.
const manyFindings = 5

// Only snapshots of this database keep its dead rows. Without pg_read_all_stats the activity of other roles is hidden.
const transactionsSQL = `
SELECT pid, coalesce(nullif(application_name, ''), 'no name'), coalesce(usename::text, ''), coalesce(state, ''), backend_type IS NULL,
	coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8, coalesce(extract(epoch FROM clock_timestamp() - state_change), 0)::float8
FROM pg_stat_activity WHERE datname = current_database() AND application_name <> '` + appName + `' AND (backend_type IS NULL OR backend_type = 'client backend')
ORDER BY xact_start NULLS LAST`

// veryOld is the age, in seconds, from which a transaction is taken to be forgotten, and not slow.
const veryOld = 24 * 60 * 60

func lookTransactions(ctx context.Context, s *session, f *findings) error {
	var pid int32
	var app, role, state string
	var hidden bool
	var age, since float64
	unseen, more, oldest := 0, 0, 0.0
	err := s.each(ctx, transactionsSQL, []any{&pid, &app, &role, &state, &hidden, &age, &since}, func() {
		idle := state == "idle in transaction" || state == "idle in transaction (aborted)"
		switch {
		case hidden:
			unseen++
			return
		case idle && since > s.cfg.limits.idle.Seconds(), age > s.cfg.limits.transaction.Seconds():
		default:
			oldest = max(oldest, age)
			return
		}
		if len(f.list) == manyFindings {
			more++
			return
		}
		level := Warning
		if age > veryOld {
			level = Error
		}
		text := fmt.Sprintf("pid %d (%s, role %s) has been in a transaction for %s", pid, app, role, span(age))
		if idle {
			text += fmt.Sprintf(", idle for %s", span(since))
		}
		f.add(level, text+": deleted rows stay", fmt.Sprintf("SELECT pg_terminate_backend(%d);", pid))
	})
	if err != nil {
		return err
	}
	if more > 0 {
		f.add(Warning, fmt.Sprintf("%d more like these", more))
	}
	if unseen > 0 {
		f.add(Note, fmt.Sprintf("the role %s may not see %s of other roles", s.role, plural(unseen, "session")), s.grantMonitor())
	} else if len(f.list) == 0 {
		f.ok("the longest takes %s so far", span(oldest))
	}
	return nil
}

const preparedSQL = `
SELECT gid, owner::text, extract(epoch FROM now() - prepared)::float8
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared`

// lookPrepared: a prepared transaction keeps its locks and its snapshot, also after restarts, until somebody ends it.
func lookPrepared(ctx context.Context, s *session, f *findings) error {
	var gid, owner string
	var age float64
	n := 0
	err := s.each(ctx, preparedSQL, []any{&gid, &owner, &age}, func() {
		if n++; age > s.cfg.limits.prepared.Seconds() && len(f.list) < manyFindings {
			f.add(Warning, fmt.Sprintf("transaction %q of role %s has been prepared for %s: its locks and deleted rows stay", gid, owner, span(age)), "ROLLBACK PREPARED "+literal(gid)+";").
				Advice = "Or COMMIT PREPARED: the coordinator of the transaction knows which."
		}
	})
	if err == nil && len(f.list) == 0 {
		f.ok("%s", plural(n, "prepared transaction"))
	}
	return err
}

// Not only connections to this server can hold an old snapshot, but also slots and standbys. A logical slot holds one of the
// catalog (catalog_xmin).
const snapshotsSQL = `
SELECT 'slot', slot_name::text, greatest(age(xmin), age(catalog_xmin))::bigint FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL
UNION ALL
SELECT 'standby', coalesce(application_name, ''), age(backend_xmin)::bigint FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
ORDER BY 3 DESC`

func lookSnapshots(ctx context.Context, s *session, f *findings) error {
	var kind, name string
	var xids, oldest int64
	err := s.each(ctx, snapshotsSQL, []any{&kind, &name, &xids}, func() {
		oldest = max(oldest, xids)
		if xids < s.cfg.limits.xids || len(f.list) == manyFindings {
			return
		}
		if kind == "slot" {
			f.add(Warning, fmt.Sprintf("slot %s keeps a snapshot of %d transactions ago: deleted rows stay", name, xids), "SELECT pg_drop_replication_slot("+literal(name)+");").
				Advice = "Only if its reader does not come back. If it does, look for a long query on that standby, or a slow subscriber."
			return
		}
		f.add(Warning, fmt.Sprintf("a query on standby %s keeps a snapshot of %d transactions ago: deleted rows stay", name, xids)).
			Advice = "End it there; or there: ALTER SYSTEM SET hot_standby_feedback = off."
	})
	if err == nil && len(f.list) == 0 {
		f.ok("none of a slot or a standby is old")
	}
	return err
}

const locksSQL = `
SELECT l.pid, l.locktype, extract(epoch FROM clock_timestamp() - l.waitstart)::float8, (pg_blocking_pids(l.pid))[1]
FROM pg_locks l WHERE NOT l.granted AND l.waitstart IS NOT NULL
	AND (l.database IS NULL OR l.database = 0 OR l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
ORDER BY l.waitstart`

func lookLocks(ctx context.Context, s *session, f *findings) error {
	var pid int32
	var blocker *int32
	var kind string
	var wait float64
	n := 0
	err := s.each(ctx, locksSQL, []any{&pid, &kind, &wait, &blocker}, func() {
		if n++; wait < s.cfg.limits.lockWait.Seconds() || len(f.list) == manyFindings {
			return
		}
		found := f.add(Warning, fmt.Sprintf("pid %d has waited %s for a lock (%s)", pid, span(wait), kind))
		switch {
		case blocker == nil:
		case *blocker == 0: // pg_blocking_pids says so
			found.Text += " of a prepared transaction"
		default:
			found.Text += fmt.Sprintf(" that pid %d holds", *blocker)
			found.Commands = []string{fmt.Sprintf("SELECT pg_terminate_backend(%d);", *blocker)}
		}
	})
	if err == nil && len(f.list) == 0 {
		f.ok("nobody waits for long")
	}
	return err
}
