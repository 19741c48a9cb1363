package doctor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotPostgreSQL: the server speaks PostgreSQL's protocol, but lacks features on which
// Tidewire's guarantees depend.
var ErrNotPostgreSQL = errors.New("this server only resembles PostgreSQL")

// Server is the interface through which Probe queries a server.
type Server interface {
	// Version returns the result of version().
	Version(ctx context.Context) (string, error)
	// Missing returns the names of the functions that do not exist.
	Missing(ctx context.Context, functions []string) ([]string, error)
	// TryLock begins a transaction on a separate connection and tries to take an advisory lock in it.
	// The transaction is open until release is called; release is not nil if err is nil.
	TryLock(ctx context.Context, key int64) (got bool, release func(), err error)
}

// resembling are servers that speak the protocol but are not PostgreSQL, by a part of the result of version().
// CockroachDB's session locks do nothing (https://github.com/cockroachdb/cockroach/issues/13546), and YugabyteDB has
// them only since 2025; the others are analytical databases, or have no sequences, no triggers and no NOTIFY.
var resembling = map[string]string{
	"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB", "Redshift": "Amazon Redshift", "Greenplum": "Greenplum",
	"RisingWave": "RisingWave", "Materialize": "Materialize", "QuestDB": "QuestDB", "CrateDB": "CrateDB", "Aurora DSQL": "Aurora DSQL",
}

// needed are functions that Tidewire's writers use: for sequences that setval moves, locks, commits that wait for
// standbys, and notifications.
var needed = []string{"setval", "nextval", "pg_sequence_last_value", "pg_advisory_xact_lock", "pg_logical_emit_message", "pg_notify", "set_config"}

// Probe returns ErrNotPostgreSQL, with the reason, for a server that only resembles PostgreSQL: its
// version() names another product, it lacks functions, or its advisory locks do not exclude. Other errors
// mean that the probe itself failed.
func Probe(ctx context.Context, s Server) error {
	version, err := s.Version(ctx)
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	for mark, name := range resembling {
		if strings.Contains(version, mark) {
			return fmt.Errorf("%w: it is %s", ErrNotPostgreSQL, name)
		}
	}
	missing, err := s.Missing(ctx, needed)
	if err != nil {
		return fmt.Errorf("look for functions: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: it has no %s", ErrNotPostgreSQL, strings.Join(missing, ", "))
	}
	return probeLocks(ctx, s)
}

// probeLocks takes a lock twice: the second connection must not get it while the first holds it.
func probeLocks(ctx context.Context, s Server) error {
	key := rand.Int64() // random, so that concurrent probes do not collide
	got, release, err := s.TryLock(ctx, key)
	if err != nil {
		return fmt.Errorf("take an advisory lock: %w", err)
	}
	if !got {
		release()
		return fmt.Errorf("%w: an advisory lock that nobody holds is refused", ErrNotPostgreSQL)
	}
	again, releaseAgain, err := s.TryLock(ctx, key)
	release()
	if err != nil {
		return fmt.Errorf("take an advisory lock on a second connection: %w", err)
	}
	releaseAgain()
	if again {
		return fmt.Errorf("%w: two connections hold one advisory lock at a time, or they reach different servers", ErrNotPostgreSQL)
	}
	return nil
}

// ProbePool runs Probe on two connections of a pool. It changes nothing, and takes eight round trips.
func ProbePool(ctx context.Context, pool *pgxpool.Pool) error { return Probe(ctx, poolServer{pool}) }

type poolServer struct{ pool *pgxpool.Pool }

func (s poolServer) Version(ctx context.Context) (version string, err error) {
	err = s.pool.QueryRow(ctx, `SELECT version()`, pgx.QueryExecModeExec).Scan(&version)
	return version, err
}

func (s poolServer) Missing(ctx context.Context, functions []string) (missing []string, err error) {
	rows, err := s.pool.Query(ctx, `SELECT f FROM unnest($1::text[]) AS f WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_proc WHERE proname = f)`,
		pgx.QueryExecModeExec, functions)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (s poolServer) TryLock(ctx context.Context, key int64) (got bool, release func(), err error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return false, nil, err
	}
	release = func() { rollback(tx) }
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, pgx.QueryExecModeExec, key).Scan(&got); err != nil {
		release()
		return false, nil, err
	}
	return got, release, nil
}

// probe is the first check.
func (d *doctor) probe(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	err := ProbePool(ctx, d.pool)
	f := Finding{Check: "server", Text: "a PostgreSQL: an advisory lock excludes other connections"}
	switch {
	case errors.Is(err, ErrNotPostgreSQL):
		f.Level, f.Text = Error, err.Error()
		f.Advice = "Use PostgreSQL itself, version 14 to 18, or a service that runs it: Tidewire's order and once-only storage rest on its locks."
	case err != nil:
		f.Level, f.Text = Note, "not checked: "+oneLine(err)
	}
	return f
}
