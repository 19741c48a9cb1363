package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The usual publish/subscribe on PostgreSQL, for comparison. Each partition has
// a row that counts its messages. The inserting transaction increments it, so
// that writers of a partition run one after the other and offsets have no gaps.
// Each group has a row with its offset in each partition. Its reader locks that
// row, and updates it after each batch.

const (
	counterRowsSQL = `
DROP SCHEMA IF EXISTS tidewire_bench CASCADE;
CREATE SCHEMA tidewire_bench;
CREATE TABLE tidewire_bench.topic_partition (id int PRIMARY KEY, next_offset bigint NOT NULL DEFAULT 1);
CREATE TABLE tidewire_bench.topic_message (
	partition int NOT NULL,
	"offset" bigint NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	payload bytea NOT NULL,
	PRIMARY KEY (partition, "offset")
);
CREATE TABLE tidewire_bench.group_offset (
	group_id int, partition int, next_offset bigint NOT NULL DEFAULT 1, PRIMARY KEY (group_id, partition)
)`
	counterRowsFillSQL = `
WITH p AS (INSERT INTO tidewire_bench.topic_partition (id) SELECT generate_series(0, $1::int - 1) RETURNING id)
INSERT INTO tidewire_bench.group_offset (group_id, partition) SELECT g, id FROM p, generate_series(0, $2::int - 1) AS g`

	publishSQL = `
WITH reserved AS (
	UPDATE tidewire_bench.topic_partition SET next_offset = next_offset + cardinality($2::bytea[])
	WHERE id = $1 RETURNING next_offset - cardinality($2::bytea[]) AS first
)
INSERT INTO tidewire_bench.topic_message (partition, "offset", payload)
SELECT $1, first + n - 1, p FROM reserved, unnest($2::bytea[]) WITH ORDINALITY AS t (p, n)`

	claimOffsetSQL = `
SELECT next_offset FROM tidewire_bench.group_offset WHERE group_id = $1 AND partition = $2 FOR UPDATE`
	readOffsetsSQL = `
SELECT payload FROM tidewire_bench.topic_message
WHERE partition = $1 AND "offset" >= $2 ORDER BY "offset" LIMIT $3`
	storedOffsetsSQL = `
SELECT "offset", payload FROM tidewire_bench.topic_message WHERE partition = $1 ORDER BY "offset"`
	lastOffsetSQL = `
SELECT next_offset - 1 FROM tidewire_bench.topic_partition WHERE id = $1`
	moveOffsetSQL = `
UPDATE tidewire_bench.group_offset SET next_offset = next_offset + $3 WHERE group_id = $1 AND partition = $2`
)

// emptyPause is how long a textbook reader waits after it found nothing.
const emptyPause = 2 * time.Millisecond

var counterRows = sides{
	describe: "a counter row for each partition, incremented by the inserting transaction",
	prepare: func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) error {
		if _, err := pool.Exec(ctx, counterRowsSQL); err != nil {
			return err
		}
		_, err := pool.Exec(ctx, counterRowsFillSQL, load.Partitions, load.Groups)
		return err
	},
	writer: func(_ context.Context, pool *pgxpool.Pool, load QueueLoad) (writeSide, error) {
		return &counterWriter{pool: pool, partitions: uint64(load.Partitions)}, nil
	},
	reader: func(_ context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error) {
		return &counterReader{pool: pool, load: load}, nil
	},
	stored: func(_ context.Context, pool *pgxpool.Pool, load QueueLoad) (storedSide, error) {
		return counterStored{pool, load.Partitions}, nil
	},
}

// counterStored reads back the contents of the partitions.
type counterStored struct {
	pool       *pgxpool.Pool
	partitions int
}

func (s counterStored) count() int { return s.partitions }

func (s counterStored) read(ctx context.Context, n int, each func(position int64, payload []byte)) (storedEnd, error) {
	rows, err := s.pool.Query(ctx, storedOffsetsSQL, n)
	if err != nil {
		return storedEnd{}, err
	}
	var offset int64
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&offset, &payload}, func() error {
		each(offset, payload)
		return nil
	})
	if err != nil {
		return storedEnd{}, err
	}
	end := storedEnd{dense: true} // the inserting transaction increments the counter row
	err = s.pool.QueryRow(ctx, lastOffsetSQL, n).Scan(&end.head)
	return end, err
}

type counterWriter struct {
	pool       *pgxpool.Pool
	partitions uint64
	calls      sync.WaitGroup
}

func (w *counterWriter) send(ctx context.Context, writer, _ int, payloads [][]byte, done func(error)) error {
	partition := uint64(writer) % w.partitions // so that a writer's messages stay in order
	w.calls.Go(func() {
		_, err := w.pool.Exec(ctx, publishSQL, partition, payloads)
		done(err)
	})
	return nil
}

func (w *counterWriter) close() { w.calls.Wait() }

type counterReader struct {
	pool *pgxpool.Pool
	load QueueLoad
}

func (r *counterReader) open(_ context.Context, number int) (source, error) {
	return &counterSource{reader: r, group: number % r.load.Groups, partition: number / r.load.Groups}, nil
}

func (r *counterReader) close() {}

// counterSource reads one partition for one group.
type counterSource struct {
	reader           *counterReader
	group, partition int
	tx               pgx.Tx
	count            int
}

func (s *counterSource) receive(ctx context.Context) ([][]byte, error) {
	for {
		payloads, err := s.read(ctx)
		if err != nil || len(payloads) > 0 {
			return payloads, err
		}
		select {
		case <-time.After(emptyPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// read leaves the transaction open if it finds messages.
func (s *counterSource) read(ctx context.Context) (payloads [][]byte, err error) {
	tx, err := s.reader.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || len(payloads) == 0 {
			tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	var next int64
	if err := tx.QueryRow(ctx, claimOffsetSQL, s.group, s.partition).Scan(&next); err != nil {
		return nil, fmt.Errorf("claim the group's offset: %w", err)
	}
	rows, err := tx.Query(ctx, readOffsetsSQL, s.partition, next, s.reader.load.ReadBatch)
	if err != nil {
		return nil, err
	}
	if payloads, err = pgx.CollectRows(rows, pgx.RowTo[[]byte]); err != nil {
		return nil, err
	}
	s.tx, s.count = tx, len(payloads)
	return payloads, nil
}

func (s *counterSource) ack(ctx context.Context) error {
	if _, err := s.tx.Exec(ctx, moveOffsetSQL, s.group, s.partition, s.count); err != nil {
		return err
	}
	return s.tx.Commit(ctx)
}

func (s *counterSource) close() {}
