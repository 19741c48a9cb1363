package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotReplicated: PostgreSQL answered a COMMIT before the standbys had it for which the database is configured
// to wait. The transaction is committed on the primary; a failover may undo it.
var ErrNotReplicated = errors.New("pg: the wait of a COMMIT for its standbys was canceled")

// notReplicated is the key of a connection's CustomData under which noteNotReplicated leaves a mark.
const notReplicated = "tidewire: not replicated"

// WaitSQL is an expression for a transaction that reads what others have committed. It makes the COMMIT of the transaction
// wait until the standbys have everything that it read, which may have been committed without a wait: the wait was
// canceled, or PostgreSQL was restarted meanwhile. A transaction that writes nothing does not wait; this one writes a message
// that exists only in the write-ahead log. The first argument assigns a transaction id: on a standby this fails like any write
// (SQLSTATE 25006), where the message itself would fail as an internal error.
const WaitSQL = `pg_logical_emit_message(pg_current_xact_id() IS NOT NULL, 'tidewire', '')`

// noteNotReplicated marks the connection of a COMMIT whose wait for the standbys was canceled, for example by
// pg_cancel_backend. Such a COMMIT succeeds with a warning. The warning has no specific SQLSTATE, and its text may be
// in any language, but it names the C function (SyncRepWaitForLSN in src/backend/replication/syncrep.c).
func noteNotReplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[notReplicated] = true
	}
}

// Replicated returns err, or ErrNotReplicated if the session's last COMMIT succeeded without its wait for
// the standbys.
func (s *Session) Replicated(err error) error {
	if s.Conn() == nil {
		return err
	}
	return replicated(s.Conn(), err)
}

// SendBatch sends a batch that may end with a COMMIT, on a connection of the pool or a new one in its slot, and reads
// the results. It returns ErrNotReplicated as Session.Replicated does.
func SendBatch(ctx context.Context, pool *pgxpool.Pool, batch *pgx.Batch) error {
	conn, err := acquireForBatch(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.release(ctx)
	return replicated(conn.Conn, conn.SendBatch(ctx, batch).Close())
}

// clearMark removes the mark that an earlier COMMIT of another user of the connection may have left.
func clearMark(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), notReplicated) }

func replicated(conn *pgx.Conn, err error) error {
	data := conn.PgConn().CustomData()
	if data[notReplicated] == nil {
		return err
	}
	delete(data, notReplicated)
	if err == nil {
		return ErrNotReplicated
	}
	return err
}
