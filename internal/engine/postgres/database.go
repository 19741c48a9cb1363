package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// sizeEvery is how old the size of the database may be: PostgreSQL looks at each of its files for it.
const sizeEvery = time.Minute

// databaseSQL asks for what costs PostgreSQL little. A standby has no position of its own in the log.
const databaseSQL = `SELECT current_setting('server_version'),
	CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_current_wal_lsn() - '0/0' END::bigint,
	(SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')`

// databaseSize keeps the size of the database. Safe for concurrent use.
type databaseSize struct {
	mu    sync.Mutex
	bytes int64
	at    time.Time
}

// database returns the state of the database.
func (e *Engine) database(ctx context.Context) (is engine.Database, err error) {
	pool := e.cfg.Pool.Stat()
	is.Connections, is.MaxConnections = int(pool.TotalConns()), int(pool.MaxConns())
	if err = e.cfg.Pool.QueryRow(ctx, databaseSQL).Scan(&is.Version, &is.WAL, &is.Standbys); err != nil {
		return is, err
	}
	is.Size, err = e.size.now(ctx, e)
	return is, err
}

func (s *databaseSize) now(ctx context.Context, e *Engine) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && time.Since(s.at) < sizeEvery {
		return s.bytes, nil
	}
	if err := e.cfg.Pool.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&s.bytes); err != nil {
		return 0, err
	}
	s.at = time.Now()
	return s.bytes, nil
}
