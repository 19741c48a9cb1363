package doctor

import (
	"context"
	"fmt"
	"math"
	"net"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// newestMajor is the newest major version with which Tidewire is tested.
const newestMajor = 18

// releases holds for each major version the newest minor release that was known in November 2026, and the day
// of its final release (https://www.postgresql.org/support/versioning/).
var releases = map[int]struct {
	minor int
	end   string
}{
	14: {24, "2026-11-12"}, 15: {20, "2027-11-11"}, 16: {15, "2028-11-09"}, 17: {11, "2029-11-08"}, 18: {6, "2030-11-14"},
}

// minorsOfAYear: there are four minor releases a year, and in most years each fixes data corruption or a security hole.
const minorsOfAYear = 4

func lookVersion(_ context.Context, s *session, f *findings) error {
	s.judgeVersion(f, s.number, s.cfg.Now())
	return nil
}

func (d *doctor) judgeVersion(f *findings, number int, now time.Time) {
	major, minor := number/10000, number%10000
	known, isKnown := releases[major]
	behind := known.minor - minor
	switch {
	case major < pg.MinVersion:
		f.add(Error, fmt.Sprintf("PostgreSQL %d is too old", major)).Advice = fmt.Sprintf("Tidewire needs %d to %d: upgrade with pg_upgrade.", pg.MinVersion, newestMajor)
	case !isKnown:
		f.add(Note, fmt.Sprintf("Tidewire was not tested with PostgreSQL %d, only with %d to %d", major, pg.MinVersion, newestMajor))
	case now.Format(time.DateOnly) > known.end:
		f.add(Warning, fmt.Sprintf("PostgreSQL %d.%d gets no fixes any more since %s", major, minor, known.end)).Advice = fmt.Sprintf("Upgrade to %d with pg_upgrade.", newestMajor)
	case behind > 0 && d.cfg.Private:
		f.add(Note, fmt.Sprintf("PostgreSQL %d.%d: %d.%d has fixes", major, minor, major, known.minor)).Advice = "A newer tidewire may bring it; or install it, and start with --postgres system."
	case behind >= minorsOfAYear:
		f.add(Warning, fmt.Sprintf("PostgreSQL %d.%d lacks the fixes of a year: %d.%d is there", major, minor, major, known.minor)).Advice = "Install it and restart: a minor release needs no migration."
	case behind > 0:
		f.add(Note, fmt.Sprintf("PostgreSQL %d.%d: %d.%d has fixes", major, minor, major, known.minor)).Advice = "Install it and restart: a minor release needs no migration."
	default:
		f.ok("PostgreSQL %d.%d", major, minor)
	}
}

func lookPrimary(ctx context.Context, s *session, f *findings) error {
	if s.inRecovery {
		found := f.add(Error, "this is a standby, which accepts no writes")
		found.Advice = "Name the primary in --database-url, or all hosts with target_session_attrs=read-write; after a failover: SELECT pg_promote();"
		return nil
	}
	// Managed services set it when the disk is nearly full.
	if s.settings["default_transaction_read_only"].value == "on" {
		f.add(Error, "transactions are read-only: default_transaction_read_only is on", s.setForRole("default_transaction_read_only", "off")).
			Advice = "Some services set it when the disk is full: look at that first."
		return nil
	}
	var timeline string
	if err := s.QueryRow(ctx, `SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)`).Scan(&timeline); err != nil {
		return err
	}
	f.ok("a primary, on timeline %s", strings.TrimLeft(timeline, "0"))
	return nil
}

// setForRole returns the statement that changes the default of a setting for this role in this database. Only the
// connection's own options override it.
func (d *doctor) setForRole(name, value string) string {
	return fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = %s;", quoted(d.sessionRole), quoted(d.database), name, literal(value))
}

func lookHosts(ctx context.Context, s *session, f *findings) error {
	cfg := s.pool.Config().ConnConfig
	hosts := map[string]bool{address(cfg.Host, cfg.Port): true}
	for _, other := range cfg.Fallbacks {
		hosts[address(other.Host, other.Port)] = true
	}
	if len(hosts) > 1 && cfg.ValidateConnect == nil {
		f.add(Warning, fmt.Sprintf("the URL names %d hosts, and takes the first that answers: it may be a standby", len(hosts))).Advice = "Add target_session_attrs=read-write to the URL."
		return nil
	}
	standbys, err := s.physicalStandbys(ctx)
	if err != nil {
		return err
	}
	if len(hosts) == 1 && len(standbys) > 0 {
		f.add(Note, "standbys exist, and the URL names one host: after a failover Tidewire does not find the new primary").Advice =
			"Name all: postgres://USER@HOST1,HOST2/" + s.database + "?target_session_attrs=read-write&connect_timeout=5; or a name that moves with the primary."
		return nil
	}
	f.ok("%s in the URL", plural(len(hosts), "host"))
	return nil
}

func address(host string, port uint16) string { return fmt.Sprint(host, " ", port) }

func lookTLS(ctx context.Context, s *session, f *findings) error {
	host := s.pool.Config().ConnConfig.Host
	if ip := net.ParseIP(host); strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback() {
		f.ok("not needed: the server is on this machine")
		return nil
	}
	var used bool
	if err := s.QueryRow(ctx, `SELECT coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)`).Scan(&used); err != nil {
		return err
	}
	if !used {
		f.add(Note, "the connection to "+host+" is not encrypted").Advice = "Add sslmode=verify-full to the URL, and sslrootcert=FILE."
		return nil
	}
	f.ok("the connection is encrypted")
	return nil
}

// clockTolerance: leases, due times and retention use PostgreSQL's clock, but clients and
// logs show the time of this machine.
const clockTolerance = time.Second

// lookClock uses the fastest of five round trips: half of it is the maximum error.
func lookClock(ctx context.Context, s *session, f *findings) error {
	offset, precision := time.Duration(0), time.Duration(math.MaxInt64)
	for range 5 {
		var there float64
		before := s.cfg.Now()
		if err := s.QueryRow(ctx, `SELECT extract(epoch FROM clock_timestamp())::float8`).Scan(&there); err != nil {
			return err
		}
		after := s.cfg.Now()
		if half := after.Sub(before) / 2; half < precision {
			precision = half
			offset = time.UnixMicro(int64(there * 1e6)).Sub(before.Add(half))
		}
	}
	if away := offset.Abs() - precision; away > clockTolerance {
		which := "later"
		if offset < 0 {
			which = "earlier"
		}
		f.add(Warning, fmt.Sprintf("PostgreSQL's clock is %s %s than this machine's", span(offset.Abs().Seconds()), which)).Advice = "Run an NTP client, such as chrony, on both: leases and due times are by PostgreSQL's clock."
		return nil
	}
	f.ok("differs by %v, known to %v", offset.Abs().Round(time.Microsecond), precision.Round(time.Microsecond))
	return nil
}
