package failover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// Pair is two private PostgreSQL servers at two fixed addresses, one of them the primary and the other its standby.
// It does the work of a cluster manager such as Patroni, with the same settings. Not safe for concurrent use.
type Pair struct {
	cfg     embedpg.Config // of both servers, without a directory
	dir     string
	servers [2]*embedpg.Server
	primary int  // index of the primary
	quorum  bool // commits wait for the standby, if there is one
}

// StartPair starts the servers with their data in dir, which the operating-system account of PostgreSQL must be
// able to enter. With quorum, commits wait for the standby. The caller must close the Pair, also after an error.
func StartPair(ctx context.Context, cfg embedpg.Config, dir string, quorum bool) (*Pair, error) {
	settings := maps.Clone(cfg.Settings)
	if settings == nil {
		settings = make(map[string]string)
	}
	settings["wal_retrieve_retry_interval"] = "200ms" // how often a standby tries to reach its primary
	settings["log_min_messages"] = "fatal"
	cfg.Settings = settings
	p := &Pair{cfg: cfg, dir: dir, quorum: quorum}
	if err := p.start(ctx, 0, nil); err != nil {
		return p, err
	}
	return p, p.Rejoin(ctx)
}

// start starts one of the servers, as the standby of a primary if there is one.
func (p *Pair) start(ctx context.Context, which int, primary *embedpg.Server) (err error) {
	cfg := p.cfg
	cfg.DataDir = filepath.Join(p.dir, string(rune('a'+which)))
	if cfg.Primary = primary; primary != nil {
		cfg.Progress = nil // there are many copies
	}
	p.servers[which], err = embedpg.Start(ctx, cfg)
	return err
}

// Close stops both servers.
func (p *Pair) Close(ctx context.Context) (err error) {
	for _, s := range p.servers {
		if s != nil {
			err = errors.Join(err, s.Stop(ctx))
		}
	}
	return err
}

// Address returns a connection string with both servers, which connects to the one that accepts writes.
func (p *Pair) Address() (string, error) {
	var hosts, ports []string
	var user, database string
	for _, s := range p.servers {
		cfg, err := pgx.ParseConfig(s.URL())
		if err != nil {
			return "", err
		}
		hosts, ports = append(hosts, cfg.Host), append(ports, fmt.Sprint(cfg.Port))
		user, database = cfg.User, cfg.Database
	}
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s target_session_attrs=read-write", strings.Join(hosts, ","), strings.Join(ports, ","), user, database), nil
}

func (p *Pair) primaryServer() *embedpg.Server { return p.servers[p.primary] }
func (p *Pair) standbyServer() *embedpg.Server { return p.servers[1-p.primary] }

// Rejoin turns the server that is not the primary into its standby, with a new copy of the data, and waits until
// the standby has everything that is committed.
func (p *Pair) Rejoin(ctx context.Context) error {
	if former := p.standbyServer(); former != nil {
		if err := former.Kill(ctx); err != nil {
			return err
		}
		if err := former.Stop(ctx); err != nil && !errors.Is(err, embedpg.ErrNotClean) {
			return err
		}
		if err := os.RemoveAll(former.DataDir()); err != nil {
			return err
		}
	}
	if err := p.start(ctx, 1-p.primary, p.primaryServer()); err != nil {
		return err
	}
	return on(ctx, p.primaryServer(), p.synchronise)
}

// synchronise makes commits wait for the standby, with quorum, and waits until the standby has what was
// committed before.
func (p *Pair) synchronise(ctx context.Context, conn *pgx.Conn) error {
	state := "async"
	if p.quorum {
		state = "quorum"
		if err := execute(ctx, conn, `ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'`, `SELECT pg_reload_conf()`); err != nil {
			return err
		}
	}
	if err := until(ctx, conn, `SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1`, state); err != nil {
		return fmt.Errorf("the standby does not follow: %w", err)
	}
	// The checkpointer tells the other processes that commits wait for the standby. It does so before
	// it makes a checkpoint.
	var at string
	if err := execute(ctx, conn, `CHECKPOINT`); err != nil {
		return err
	}
	if err := conn.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn()::text`).Scan(&at); err != nil {
		return err
	}
	if err := until(ctx, conn, `SELECT count(*) = 1 FROM pg_stat_replication WHERE replay_lsn >= $1::pg_lsn`, at); err != nil {
		return fmt.Errorf("the standby does not catch up: %w", err)
	}
	return nil
}

// Promote makes the standby the primary. Its commits wait for no standby until there is one.
// The returned time is when the promotion was requested.
func (p *Pair) Promote(ctx context.Context) (asked time.Time, err error) {
	err = on(ctx, p.standbyServer(), func(ctx context.Context, conn *pgx.Conn) error {
		asked = time.Now()
		if err := execute(ctx, conn, `SELECT pg_promote(false)`); err != nil {
			return err
		}
		if err := until(ctx, conn, `SELECT NOT pg_is_in_recovery()`); err != nil {
			return fmt.Errorf("the standby is not promoted: %w", err)
		}
		return execute(ctx, conn, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	})
	p.primary = 1 - p.primary
	return asked, err
}

// CutOff stops the standby from receiving anything.
func (p *Pair) CutOff(ctx context.Context) error {
	return on(ctx, p.standbyServer(), func(ctx context.Context, conn *pgx.Conn) error {
		if err := execute(ctx, conn, `ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`); err != nil {
			return err
		}
		return until(ctx, conn, `SELECT count(*) = 0 FROM pg_stat_wal_receiver`)
	})
}

// EndWaits repeatedly ends the waits of commits for the standby, with the named function, for the given time. The
// primary may be unreachable meanwhile, as after a crash.
func (p *Pair) EndWaits(ctx context.Context, function string, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if function != "" {
			bound, cancel := context.WithDeadline(ctx, end)
			on(bound, p.primaryServer(), func(ctx context.Context, conn *pgx.Conn) error {
				return execute(ctx, conn, `SELECT count(`+function+`(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
			})
			cancel()
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Crash kills one backend of a client: then the primary ends all sessions, and recovers.
func (p *Pair) Crash(ctx context.Context) error {
	return on(ctx, p.primaryServer(), func(ctx context.Context, conn *pgx.Conn) error {
		var pid int
		err := conn.QueryRow(ctx, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' ORDER BY pid = pg_backend_pid(), state = 'idle', random() LIMIT 1`).Scan(&pid)
		if err != nil {
			return err
		}
		return kill(pid)
	})
}

// on connects to a server and calls do. It waits for a server that is recovering.
func on(ctx context.Context, s *embedpg.Server, do func(context.Context, *pgx.Conn) error) error {
	for end := time.Now().Add(patience); ; {
		conn, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			defer conn.Close(context.WithoutCancel(ctx))
			return do(ctx, conn)
		}
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != cannotConnectNow || time.Now().After(end) || sleep(ctx, 20*time.Millisecond) != nil {
			return err
		}
	}
}

// cannotConnectNow is the SQLSTATE of a server that is starting, recovering or stopping.
const cannotConnectNow = "57P03"

func execute(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// patience is the maximum time for each step of the servers.
const patience = 2 * time.Minute

// until repeats a query until it returns true.
func until(ctx context.Context, conn *pgx.Conn, sql string, args ...any) error {
	for end := time.Now().Add(patience); ; {
		var yes bool
		if err := conn.QueryRow(ctx, sql, args...).Scan(&yes); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		if yes {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not so within %v", sql, patience)
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
