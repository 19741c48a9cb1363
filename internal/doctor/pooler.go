package doctor

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrPooled: a pooler lends each session of PostgreSQL for a transaction at a time. What Tidewire does in a session is then done
// in any of them: LISTEN, prepared statements, settings and session locks.
var ErrPooled = errors.New("a pooler lends the sessions of PostgreSQL for a transaction at a time")

// poolerRounds is how often the sessions of a pooler are compared. One round is enough unless other clients of the pooler take
// sessions meanwhile.
const poolerRounds = 5

// ProbeSessions returns ErrPooled if the pool's connections do not keep their sessions. pooled reports whether there is any
// pooler in between: it gives its client its own number as the pid. Other errors mean that the probe itself failed.
func ProbeSessions(ctx context.Context, pool *pgxpool.Pool) (pooled bool, err error) {
	first, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer first.Release()
	pid, err := backend(ctx, first)
	if err != nil || pid == first.Conn().PgConn().PID() {
		return false, err
	}
	second, err := pool.Acquire(ctx)
	if err != nil {
		return true, err
	}
	defer second.Release()
	for range poolerRounds {
		if err := compareSessions(ctx, first, second, pid); err != nil {
			return true, err
		}
	}
	return true, nil
}

// compareSessions looks whether the session of the first connection, which had this pid, is lent to the second: while that
// is in a transaction, the first one gets another session, or the second one has got the first one's. A pooler that takes the
// idle session that was used last shows the one, and a pooler that takes turns the other.
func compareSessions(ctx context.Context, first, second *pgxpool.Conn, pid uint32) error {
	tx, err := second.Begin(ctx)
	if err != nil && strings.Contains(err.Error(), "statement pooling") { // PgBouncer with pool_mode = statement refuses transactions
		return ErrPooled
	}
	if err != nil {
		return err
	}
	defer rollback(tx)
	other, err := backend(ctx, tx)
	if err == nil && other == pid {
		return ErrPooled
	}
	again, err := backend(ctx, first)
	if err == nil && again != pid {
		return ErrPooled
	}
	return err
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// backend returns the pid of the session that answers.
func backend(ctx context.Context, conn querier) (pid uint32, err error) {
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeExec).Scan(&pid)
	return pid, err
}

// refusedPooler is the finding for a pooler that no server can use.
var refusedPooler = Finding{Check: "pooler", Level: Error, Text: ErrPooled.Error(),
	Advice: "Name PostgreSQL itself in --database-url, or a pool with pool_mode = session: serve refuses this one, because notifications and prepared statements need their session."}

func lookPooler(_ context.Context, s *session, f *findings) error {
	switch {
	case s.pooling != nil:
		return s.pooling
	case s.pooled:
		f.add(Note, "a pooler is in between; sessions are not shared").Advice = "Its limit of clients has to admit all of Tidewire's connections."
	default:
		f.ok("none in between")
	}
	return nil
}
