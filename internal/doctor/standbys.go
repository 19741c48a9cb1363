package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// standby is a row of pg_stat_replication. Without pg_read_all_stats, all but the existence of another role's row is hidden.
type standby struct {
	name, state, sync string
	hidden            bool
	bytes             int64   // of the log, not yet flushed on the standby
	lag               float64 // seconds until the latest commit was replayed
}

// Excludes logical subscribers and base backups, which cannot take over in a failover.
const standbysSQL = `
SELECT coalesce(r.application_name, ''), coalesce(r.state, ''), coalesce(r.sync_state, ''), r.state IS NULL,
	coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), r.flush_lsn), 0)::bigint, coalesce(extract(epoch FROM r.replay_lag), 0)::float8
FROM pg_stat_replication r LEFT JOIN pg_replication_slots s ON s.active_pid = r.pid
WHERE s.slot_type IS DISTINCT FROM 'logical' AND r.state IS DISTINCT FROM 'backup'
ORDER BY 1`

func (s *session) physicalStandbys(ctx context.Context) (all []standby, err error) {
	if s.inRecovery {
		return nil, nil
	}
	var b standby
	err = s.each(ctx, standbysSQL, []any{&b.name, &b.state, &b.sync, &b.hidden, &b.bytes, &b.lag}, func() { all = append(all, b) })
	return all, err
}

// visible returns the standbys, or none and a note if the role may not see them.
func (s *session) visible(ctx context.Context, f *findings) ([]standby, bool, error) {
	all, err := s.physicalStandbys(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, b := range all {
		if b.hidden {
			f.add(Note, fmt.Sprintf("the role %s may not see how %s fare", s.role, plural(len(all), "standby")), s.grantMonitor())
			return nil, false, nil
		}
	}
	return all, true, nil
}

func lookStandbys(ctx context.Context, s *session, f *findings) error {
	all, seen, err := s.visible(ctx, f)
	if err != nil || !seen {
		return err
	}
	for _, b := range all {
		s.cfg.limits.judgeStandby(f, b)
	}
	if len(all) == 0 {
		f.ok("none follows this server")
	}
	return nil
}

func (l *limits) judgeStandby(f *findings, b standby) {
	behind := fmt.Sprintf("%s lacks %s, and is %s late", b.name, size(b.bytes), span(b.lag))
	switch {
	case b.state != "streaming" && b.state != "catchup":
		f.add(Warning, fmt.Sprintf("%s does not follow: its state is %s", b.name, b.state)).Advice = "Look at the standby's own log."
	case b.bytes > l.lagBytes || b.lag > l.lag.Seconds():
		f.add(Warning, behind).Advice = "A failover to it takes that long, and loses commits that did not wait for it: check its disk, its network, and long queries on it."
	case b.state == "catchup":
		f.add(Note, behind+": it catches up")
	default:
		f.ok("%s follows (%s); it lacks %s", b.name, b.sync, size(b.bytes))
	}
}

var syncNumber = regexp.MustCompile(`(?i)^\s*(?:(?:any|first)\s+)?(\d+)\s*\(`)

// syncNeeded returns how many standbys a commit waits for (grammar of the setting:
// https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES).
func syncNeeded(names string) int {
	if strings.TrimSpace(names) == "" {
		return 0
	}
	if m := syncNumber.FindStringSubmatch(names); m != nil {
		n, _ := strconv.Atoi(m[1])
		return n
	}
	return 1
}

// lookSync checks whether commits wait for standbys, and whether enough of these are connected.
func lookSync(ctx context.Context, s *session, f *findings) error {
	names := s.settings["synchronous_standby_names"].value
	needed := syncNeeded(names)
	if needed == 0 {
		all, err := s.physicalStandbys(ctx)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			f.ok("no standby, so no commit waits for one")
			return nil
		}
		found := f.add(Warning, fmt.Sprintf("%s, and no commit waits for any: a failover may lose acknowledged messages", standbysAre(len(all))),
			alterSystem("synchronous_standby_names", "ANY 1 (*)")...)
		if len(all) == 1 {
			found.Advice = "With one standby alone, all commits wait while it is away: have two."
		}
		return nil
	}
	all, seen, err := s.visible(ctx, f)
	if err != nil || !seen {
		return err
	}
	s.judgeSync(f, needed, all)
	return nil
}

func (s *session) judgeSync(f *findings, needed int, all []standby) {
	there := 0
	for _, b := range all {
		if b.state == "streaming" && (b.sync == "sync" || b.sync == "quorum") {
			there++
		}
	}
	commit := s.settings["synchronous_commit"]
	switch {
	case there < needed:
		f.add(Error, fmt.Sprintf("commits wait for ever: %d of the standbys in synchronous_standby_names needed, %d there", needed, there), alterSystem("synchronous_standby_names", "")...).
			Advice = "Start a standby with a name that is in it. The command gives up waiting: a failover may then lose acknowledged messages."
	case commit.value == "off" || commit.value == "local":
		f.add(Warning, fmt.Sprintf("synchronous_commit is %s: Tidewire's commits do not wait for the standbys", commit.value), s.setForRole("synchronous_commit", "on"))
	case commit.value == "remote_write":
		f.add(Note, "synchronous_commit is remote_write: a standby has not flushed yet what is acknowledged", s.setForRole("synchronous_commit", "on"))
	default:
		f.ok("a commit waits for %s of %d", plural(needed, "standby"), len(all))
	}
}

func standbysAre(n int) string {
	if n == 1 {
		return "1 standby follows"
	}
	return fmt.Sprintf("%d standbys follow", n)
}

// manySlotBytes fills a small disk, and is several hours of log under an ordinary load.
const manySlotBytes = 10 << 30

const slotsSQL = `
SELECT slot_name::text, active, coalesce(wal_status, ''), coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, restart_lsn IS NULL
FROM pg_replication_slots WHERE NOT temporary ORDER BY 1`

// lookSlots: a slot that nobody uses keeps the log until the disk is full.
func lookSlots(ctx context.Context, s *session, f *findings) error {
	if s.inRecovery {
		f.ok("not checked on a standby")
		return nil
	}
	unlimited := s.settings["max_slot_wal_keep_size"].number < 0
	var name, status string
	var active, unused bool
	var bytes int64
	used := 0
	err := s.each(ctx, slotsSQL, []any{&name, &active, &status, &bytes, &unused}, func() {
		drop := "SELECT pg_drop_replication_slot(" + literal(name) + ");"
		switch {
		case status == "lost":
			f.add(Warning, "slot "+name+" has lost the log that its reader needs", drop).Advice = "Create that standby or subscriber again."
		case active || unused: // an unused slot keeps no log
			used++
		default:
			level := Warning
			if bytes > manySlotBytes && unlimited {
				level = Error
			}
			found := f.add(level, fmt.Sprintf("nobody reads slot %s, and it keeps %s of the log", name, size(bytes)), drop)
			found.Advice = "Only if its reader does not come back: afterwards that reader has to be created again."
			if unlimited {
				found.Commands = append(found.Commands, alterSystem("max_slot_wal_keep_size", "10GB")...)
				found.Advice += " The limit keeps the disk from filling."
			}
		}
	})
	if err != nil {
		return err
	}
	if used > 0 && unlimited {
		f.add(Note, "max_slot_wal_keep_size is unlimited: a standby that stays away fills the disk", alterSystem("max_slot_wal_keep_size", "10GB")...)
	}
	if len(f.list) == 0 {
		f.ok("%s, none forgotten", plural(used, "slot"))
	}
	return nil
}

const archiverSQL = `
SELECT failed_count, coalesce(last_failed_wal, ''), coalesce(extract(epoch FROM now() - last_failed_time)::float8, 0),
	last_failed_time IS NOT NULL AND (last_archived_time IS NULL OR last_failed_time > last_archived_time)
FROM pg_stat_archiver`

func lookArchiving(ctx context.Context, s *session, f *findings) error {
	if s.settings["archive_mode"].value == "off" {
		f.ok("off: no backup of the log is made here")
		return nil
	}
	command, seen := s.settings["archive_command"]
	if seen && (command.value == "" || command.value == "(disabled)") && s.settings["archive_library"].value == "" {
		f.add(Warning, "archive_mode is on without an archive_command: the log piles up").Advice = "Set archive_command, or archive_mode = off, which takes effect after a restart."
		return nil
	}
	var failed int64
	var wal string
	var ago float64
	var failing bool
	if err := s.QueryRow(ctx, archiverSQL).Scan(&failed, &wal, &ago, &failing); err != nil {
		return err
	}
	if failing {
		f.add(Error, fmt.Sprintf("archive_command fails, last %s ago at %s: the log piles up, and backups have a gap", span(ago), wal)).Advice = "PostgreSQL's log says why; SHOW archive_command shows it."
		return nil
	}
	f.ok("works; it has failed %d times before", failed)
	return nil
}

func lookChecksums(ctx context.Context, s *session, f *findings) error {
	var failures int64
	var ago float64
	err := s.QueryRow(ctx, `SELECT coalesce(sum(checksum_failures), 0)::bigint, coalesce(extract(epoch FROM now() - max(checksum_last_failure)), 0)::float8 FROM pg_stat_database`).Scan(&failures, &ago)
	switch {
	case err != nil:
		return err
	case failures > 0:
		f.add(Error, fmt.Sprintf("%d damaged pages were read, the last %s ago: the disk or the memory is faulty", failures, span(ago))).
			Advice = "Copy the data directory first. Then restore a backup, or fail over to a standby."
	case s.settings["data_checksums"].value == "off" && !s.cfg.Private:
		f.add(Note, "off: a page that the disk damages is not noticed").Advice = "With PostgreSQL stopped: pg_checksums -e -D DIRECTORY."
	default:
		f.ok("%s; no damaged page was read", s.settings["data_checksums"].value)
	}
	return nil
}
