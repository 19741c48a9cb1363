package stream

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeNoStream is raised by tidewire.publish_batch, and by the trigger after it, if
// the stream does not exist.
const codeNoStream = "TW003"

// AppendTx appends the messages in the caller's own transaction (transactional outbox). They are stored when
// that commits, in the order of the calls and at consecutive positions, and not if it, or the savepoint they
// were appended in, is rolled back. Until the commit it takes no lock of the stream, so a slow transaction
// delays no one. Messages get their positions, and their Time, at the commit, so that visible order stays
// position order; AppendTx cannot return them.
//
// In a stream with partitions each message goes to the partition of its own key, and all messages without a
// key go to one partition.
//
// It works at all isolation levels. With REPEATABLE READ and SERIALIZABLE a transaction may leave a gap of some
// thousand positions. The SQL function tidewire.publish(stream text, key text, headers jsonb,
// payload bytea) does the same in any language, for payloads of up to 1 MiB, but does not check the limits of
// Message.Headers. A role other than the one that migrated needs USAGE on schema tidewire, and EXECUTE on that
// function, or on tidewire.publish_batch for AppendTx. Neither writes to a stream whose name begins with "tidewire.".
//
// PostgreSQL holds the messages in a temporary table of the session, which
// rules out PREPARE TRANSACTION. SET CONSTRAINTS ALL IMMEDIATE takes the
// stream's lock at once, for the rest of the transaction.
//
// Errors: after ErrInvalid the transaction may continue; after ErrNotFound and PostgreSQL's own errors it
// cannot. The commit may fail as well: with SQLSTATE TW003 if the stream was dropped meanwhile, or 40001 if
// it was moved to its own tables or dropped after the transaction's snapshot, or 40P01 (deadlock) if another
// transaction appended to several streams and waits for a lock that this one holds; then the whole
// transaction can be repeated.
//
// The subscriptions of this process learn of the messages by Notify, which the caller may call once the
// transaction is committed, and all others by their next poll: a NOTIFY in the transaction would serialize
// the commits of all such transactions.
func (s *Stream) AppendTx(ctx context.Context, tx pgx.Tx, msgs ...Message) error {
	if _, err := validAppend(msgs); err != nil {
		return err
	}
	if s.count > 0 {
		return appendTxPartitioned(ctx, tx, s, msgs)
	}
	return appendTx(ctx, tx, s, msgs)
}

func appendTx(ctx context.Context, tx pgx.Tx, s *Stream, msgs []Message) error {
	keys, headers, payloads := make([]string, len(msgs)), make([]*string, len(msgs)), make([][]byte, len(msgs))
	for i, m := range msgs {
		keys[i] = m.Key
		if len(m.Headers) > 0 {
			headers[i] = new(string(m.Headers))
		}
		if payloads[i] = m.Payload; m.Payload == nil {
			payloads[i] = []byte{} // and not NULL
		}
	}
	if _, err := tx.Exec(ctx, publishBatchSQL, s.id, keys, headers, payloads); err != nil {
		if pg.Code(err) == codeNoStream {
			err = fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return fmt.Errorf("append to stream %q: %w", s.name, err)
	}
	return nil
}
