package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// noticed is the key of a connection's CustomData that marks connections whose notices go to noteNotReplicated.
const noticed = "tidewire: noticed"

// watchNotices makes the connections of a configuration call noteNotReplicated with their notices, before their
// owner's OnNotice.
func watchNotices(cfg *pgx.ConnConfig) {
	told := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		noteNotReplicated(conn, notice)
		if told != nil {
			told(conn, notice)
		}
	}
	connected := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		conn.CustomData()[noticed] = true
		if connected != nil {
			return connected(ctx, conn)
		}
		return nil
	}
}

// writerConn is a connection to write on, together with its slot in the pool. The connections of a pool that
// Open has not made do not report canceled waits for standbys, and pgx cannot add that later. Then the pool's
// connection is closed, and a new one takes its slot.
type writerConn struct {
	*pgx.Conn
	place *pgxpool.Conn
}

// acquireWriter waits for a connection of the pool, as Acquire does. The caller has to release it.
func acquireWriter(ctx context.Context, pool *pgxpool.Pool) (*writerConn, error) {
	place, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return inPlaceOf(ctx, pool, place)
}

// acquireForBatch is acquireWriter for one transaction: if no COMMIT waits for a standby, it uses the
// pool's connection.
func acquireForBatch(ctx context.Context, pool *pgxpool.Pool) (*writerConn, error) {
	place, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	waits := false
	if !tellsNotices(place.Conn()) {
		err = place.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names') <> ''`).Scan(&waits)
	}
	switch {
	case err != nil:
		place.Release()
		return nil, err
	case waits:
		return inPlaceOf(ctx, pool, place)
	}
	clearMark(place.Conn())
	return &writerConn{place.Conn(), place}, nil
}

func inPlaceOf(ctx context.Context, pool *pgxpool.Pool, place *pgxpool.Conn) (*writerConn, error) {
	if tellsNotices(place.Conn()) {
		clearMark(place.Conn())
		return &writerConn{place.Conn(), place}, nil
	}
	place.Conn().Close(ctx)
	conn, err := connectAsPool(ctx, pool)
	if err != nil {
		place.Release()
		return nil, err
	}
	return &writerConn{conn, place}, nil
}

// release returns the slot to the pool, with the connection if it is the pool's and still open.
func (c *writerConn) release(ctx context.Context) {
	if c.Conn != c.place.Conn() {
		c.Conn.Close(ctx)
	}
	c.place.Release()
}

func tellsNotices(conn *pgx.Conn) bool {
	return conn.PgConn().CustomData()[noticed] != nil
}

// connectAsPool opens a connection as the pool does: with its hooks, which may fetch a password or
// choose a role.
func connectAsPool(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	cfg := pool.Config()
	if cfg.BeforeConnect != nil {
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	watchNotices(cfg.ConnConfig)
	conn, err := hostsOf(cfg.ConnConfig).connect(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, err
	}
	if cfg.AfterConnect != nil {
		err = cfg.AfterConnect(ctx, conn)
	}
	if err == nil && cfg.PrepareConn != nil {
		_, err = cfg.PrepareConn(ctx, conn)
	}
	if err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}
