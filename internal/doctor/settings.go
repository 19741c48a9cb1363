package doctor

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"
)

const (
	reload      = "SELECT pg_reload_conf();"
	needRestart = "It takes effect after a restart of PostgreSQL."
)

// alterSystem returns the statements that change a setting for which a reload is enough.
func alterSystem(name, value string) []string {
	return []string{fmt.Sprintf("ALTER SYSTEM SET %s = %s;", name, literal(value)), reload}
}

// lookDurability checks whether a crash can lose commits
// (https://www.postgresql.org/docs/current/runtime-config-wal.html).
func lookDurability(_ context.Context, s *session, f *findings) error {
	if s.settings["fsync"].value == "off" {
		f.add(Error, "fsync is off: a crash of the machine destroys the database", alterSystem("fsync", "on")...)
	}
	if s.settings["full_page_writes"].value == "off" {
		f.add(Warning, "full_page_writes is off: a crash of the machine can leave half-written pages", alterSystem("full_page_writes", "on")...).
			Advice = "It is right only on a file system that never writes half a page, such as ZFS."
	}
	// Tidewire's writers raise it to local for themselves: internal/pg/settings.go.
	if s.settings["synchronous_commit"].value == "off" {
		f.add(Note, "synchronous_commit is off: Tidewire's writers wait for the disk all the same, your own transactions do not", s.setForRole("synchronous_commit", "on"))
	}
	if len(f.list) == 0 {
		f.ok("a commit is on the disk when it is answered")
	}
	return nil
}

// Writers override time-outs in each of their transactions (internal/pg/settings.go); reads do not.
const (
	// shortTimeout is the time that a page of messages can take on a busy server.
	shortTimeout = 10 * time.Second
	// shortIdle: pools keep idle connections for half an hour (pgxpool's MaxConnIdleTime), and check them each minute.
	shortIdle = time.Minute
)

func lookTimeouts(_ context.Context, s *session, f *findings) error {
	var whole []string
	for name, short := range map[string]time.Duration{"statement_timeout": shortTimeout, "transaction_timeout": shortTimeout, "idle_session_timeout": shortIdle} {
		if _, there := s.settings[name]; there {
			whole = append(whole, name)
			s.lookTimeout(f, name, short)
		}
	}
	sort.Slice(f.list, func(i, j int) bool { return f.list[i].Text < f.list[j].Text })
	if len(f.list) == 0 {
		sort.Strings(whole)
		f.ok("no %s", strings.Join(whole, ", "))
	}
	return nil
}

func (s *session) lookTimeout(f *findings, name string, short time.Duration) {
	v := s.settings[name]
	bound := time.Duration(v.number) * time.Millisecond
	if bound == 0 {
		return
	}
	what := "reads that take longer fail; writers are exempt"
	if name == "idle_session_timeout" {
		what = "idle connections, and those that listen, are ended and made again"
	}
	level := Note
	if bound < short {
		level = Warning
	}
	found := f.add(level, fmt.Sprintf("%s is %v: %s", name, bound, what))
	if v.source == "client" {
		found.Advice = "The URL sets it, or PGOPTIONS: leave it out there."
	} else {
		found.Commands = []string{s.setForRole(name, "0")}
	}
}

// defaultBuffers is shared_buffers as initdb sets it, in pages of 8 KiB: 128 MiB.
const defaultBuffers = 16384

func lookSettings(_ context.Context, s *session, f *findings) error {
	value := func(name string) string { return s.settings[name].value }
	for _, name := range []string{"autovacuum", "track_counts"} {
		if value(name) == "off" {
			f.add(Warning, name+" is off: nothing removes deleted rows, and transaction numbers run out", alterSystem(name, "on")...)
		}
	}
	// Without it pg_stat_activity has no xact_start, which internal/pg/lock.go needs.
	if value("track_activities") == "off" {
		f.add(Warning, "track_activities is off: a frozen server that holds a stream's lock cannot be found, and blocks the others", alterSystem("track_activities", "on")...)
	}
	if value("wal_level") == "minimal" {
		f.add(Note, "wal_level is minimal: there can be no standby and no backup of the log", "ALTER SYSTEM SET wal_level = 'replica';", "ALTER SYSTEM SET max_wal_senders = '10';").Advice = needRestart
	} else if value("max_wal_senders") == "0" {
		f.add(Note, "max_wal_senders is 0: there can be no standby", "ALTER SYSTEM SET max_wal_senders = '10';").Advice = needRestart
	}
	if s.settings["shared_buffers"].number == defaultBuffers && !s.cfg.Private {
		f.add(Note, "shared_buffers is 128 MiB, as installed", "ALTER SYSTEM SET shared_buffers = '4GB';").
			Advice = "A quarter of the machine's memory is usual (4GB of 16). " + needRestart
	}
	// Tidewire's functions forbid it (docs/decisions/0026), and the default is 100000.
	if cost := s.settings["jit_above_cost"]; value("jit") == "on" && cost.number >= 0 && cost.number < 100000 {
		f.add(Note, fmt.Sprintf("jit_above_cost is %d: PostgreSQL compiles short queries, which takes longer than they do", cost.number), s.setForRole("jit", "off"))
	}
	s.lookPending(f)
	if len(f.list) == 0 {
		f.ok("none that harms")
	}
	return nil
}

func (s *session) lookPending(f *findings) {
	var names []string
	for name, v := range s.settings {
		if v.pending {
			names = append(names, name)
		}
	}
	if sort.Strings(names); len(names) > 0 {
		f.add(Note, strings.Join(names, ", ")+": changed in the configuration, and not in the running server").Advice = needRestart
	}
}

const (
	oldCheckpointsSQL = `SELECT checkpoints_timed, checkpoints_req, extract(epoch FROM now() - coalesce(stats_reset, pg_postmaster_start_time()))::float8 FROM pg_stat_bgwriter`
	checkpointsSQL    = `SELECT num_timed, num_requested, extract(epoch FROM now() - coalesce(stats_reset, pg_postmaster_start_time()))::float8 FROM pg_stat_checkpointer`
)

// lookCheckpoints: after each checkpoint PostgreSQL logs the full content of every page at its first change, so extra
// checkpoints forced by max_wal_size are expensive (https://www.postgresql.org/docs/current/wal-configuration.html).
func lookCheckpoints(ctx context.Context, s *session, f *findings) error {
	sql := checkpointsSQL
	if s.major() < 17 {
		sql = oldCheckpointsSQL
	}
	var timed, requested int64
	var seconds float64
	if err := s.QueryRow(ctx, sql).Scan(&timed, &requested, &seconds); err != nil {
		return err
	}
	every := float64(s.settings["checkpoint_timeout"].number)
	if requested >= s.cfg.limits.checkpoints && requested > timed && seconds/float64(requested) < every {
		megabytes := s.settings["max_wal_size"].number
		f.add(Warning, fmt.Sprintf("%d checkpoints before their time, %d in time: max_wal_size is small for the load", requested, timed),
			alterSystem("max_wal_size", fmt.Sprintf("%dMB", 4*megabytes))...).Advice = "Have room for it on the disk."
		return nil
	}
	f.ok("%d in time, %d before", timed, requested)
	return nil
}
