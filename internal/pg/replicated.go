package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrNotReplicated: a COMMIT was answered before the standbys had it that the database is configured
// to wait for. The transaction is committed on the primary; a failover may undo it.
var ErrNotReplicated = errors.New("pg: the wait of a COMMIT for its standbys was canceled")

// notReplicated is the key of a connection's CustomData under which noteNotReplicated leaves a mark.
const notReplicated = "tidewire: not replicated"

// WaitSQL is what a query selects from, beside what it looks for, so that its COMMIT waits for the standbys until they
// have what it finds. That may have been committed without such a wait: it was canceled, or PostgreSQL was restarted meanwhile. A
// transaction that writes nothing does not wait; this one writes a message, which is in the write-ahead log and nowhere else.
// Its first argument takes a transaction's number: on a standby that fails as a statement does that writes (SQLSTATE
// 25006), where the message itself would fail as an internal error.
const WaitSQL = `pg_logical_emit_message(pg_current_xact_id() IS NOT NULL, 'tidewire', '')`

// noteNotReplicated marks the connection of a COMMIT whose wait was canceled, as pg_cancel_backend does.
// Such a COMMIT succeeds, with a warning that has no SQLSTATE of its own, and a text in any language: but it
// names the function (SyncRepWaitForLSN in src/backend/replication/syncrep.c).
func noteNotReplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[notReplicated] = true
	}
}

// Replicated returns err, or ErrNotReplicated if the session's last COMMIT succeeded and was not waited
// for.
func (s *Session) Replicated(err error) error {
	if s.Conn() == nil {
		return err
	}
	return replicated(s.Conn(), err)
}

// SendBatch sends a batch that may end with a COMMIT, on a connection of the pool or in its place, and reads
// what comes. It returns ErrNotReplicated as Session.Replicated does.
func SendBatch(ctx context.Context, pool *pgxpool.Pool, batch *pgx.Batch) error {
	conn, err := acquireForBatch(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.release(ctx)
	return replicated(conn.Conn, conn.SendBatch(ctx, batch).Close())
}

// clearMark forgets what a COMMIT has left that somebody else sent.
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
