// Package skiplocked is the common queue on PostgreSQL with SELECT … FOR UPDATE SKIP LOCKED. Package queue is compared with it.
package skiplocked

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Queue is a table from which consumers take the first rows that nobody else has
// locked, and an archive to which they move the finished ones, in one
// transaction. If a consumer's transaction ends without that, its messages are
// redelivered. It scales badly: each message is inserted, locked, deleted and
// inserted again, and every transaction has its own commit.
//
// Safe for concurrent use. Each Claim holds a connection of the pool until it is
// settled.
type Queue struct{ pool *pgxpool.Pool }

// New returns the queue in the given pool. It has no name: there is one queue
// in a database, in the schema tidewire_bench.
func New(pool *pgxpool.Pool) *Queue { return &Queue{pool} }

// Recreate drops the tables, if they exist, and creates them again.
func (q *Queue) Recreate(ctx context.Context) error {
	if _, err := q.pool.Exec(ctx, tablesSQL); err != nil {
		return fmt.Errorf("make the tables of the queue to compare with: %w", err)
	}
	return nil
}

// Enqueue stores one or several messages with one statement, and returns when
// they are committed.
func (q *Queue) Enqueue(ctx context.Context, payloads ...[]byte) error {
	var err error
	if len(payloads) == 1 {
		_, err = q.pool.Exec(ctx, insertSQL, payloads[0])
	} else {
		_, err = q.pool.Exec(ctx, insertManySQL, payloads)
	}
	if err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	return nil
}

// Claim is a batch of messages that a consumer has taken, in an open transaction.
type Claim struct {
	// Payloads of the messages, in insertion order.
	Payloads [][]byte

	tx  pgx.Tx
	ids []int64
}

// Claim takes up to n messages. If there are none it returns nil.
func (q *Queue) Claim(ctx context.Context, n int) (c *Claim, err error) {
	tx, err := q.pool.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	c = &Claim{tx: tx}
	rows, err := tx.Query(ctx, claimSQL, n)
	if err == nil {
		var id int64
		var payload []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
			c.ids, c.Payloads = append(c.ids, id), append(c.Payloads, payload)
			payload = nil
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim: %w", err), c.Release(ctx))
	}
	if len(c.ids) == 0 {
		return nil, c.Release(ctx)
	}
	return c, nil
}

// Done moves the messages to the archive and commits.
func (c *Claim) Done(ctx context.Context) error {
	_, err := c.tx.Exec(ctx, archiveSQL, c.ids)
	if err == nil {
		err = c.tx.Commit(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("archive: %w", err), c.Release(ctx))
	}
	return nil
}

// Release rolls back, so that the messages can be claimed again.
func (c *Claim) Release(ctx context.Context) error {
	err := c.tx.Rollback(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

const (
	tablesSQL = `
DROP SCHEMA IF EXISTS tidewire_bench CASCADE;
CREATE SCHEMA tidewire_bench;
CREATE TABLE tidewire_bench.queue (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	created_at timestamptz NOT NULL DEFAULT now(),
	payload bytea NOT NULL
);
CREATE TABLE tidewire_bench.queue_archive (
	id bigint PRIMARY KEY,
	created_at timestamptz NOT NULL,
	done_at timestamptz NOT NULL DEFAULT now(),
	payload bytea NOT NULL
)`
	insertSQL     = `INSERT INTO tidewire_bench.queue (payload) VALUES ($1)`
	insertManySQL = `INSERT INTO tidewire_bench.queue (payload) SELECT unnest($1::bytea[])`
	claimSQL      = `
SELECT id, payload FROM tidewire_bench.queue
ORDER BY id LIMIT $1
FOR UPDATE SKIP LOCKED -- a busy row is another consumer's, move on`
	archiveSQL = `
WITH done AS (DELETE FROM tidewire_bench.queue WHERE id = ANY ($1::bigint[]) RETURNING id, created_at, payload)
INSERT INTO tidewire_bench.queue_archive (id, created_at, payload) SELECT id, created_at, payload FROM done`
)
