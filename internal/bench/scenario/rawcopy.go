package scenario

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

const rawCopySQL = `COPY public.messages (position, payload) FROM STDIN (FORMAT binary)`

// RawCopy loads the same messages with one COPY statement on one connection,
// with everything encoded beforehand: it measures PostgreSQL alone, without
// sockets, parsing or batching. It returns the duration of the statement,
// commit included.
func RawCopy(ctx context.Context, pool *pgxpool.Pool, clients, messages, size int) (time.Duration, error) {
	data := make([]byte, 0, 21+clients*messages*(18+size))
	data = append(data, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	payload := bench.AppendPayload(nil, 0, 0, size)
	position := uint64(0)
	for seq := range messages {
		for client := range clients {
			position++
			data = append(data, 0, 2, 0, 0, 0, 8)
			data = binary.BigEndian.AppendUint64(data, position)
			data = binary.BigEndian.AppendUint32(data, uint32(size))
			data = bench.AppendPayload(data, client, seq, bench.MinPayload)
			data = append(data, payload[bench.MinPayload:]...)
		}
	}
	data = append(data, 0xff, 0xff)
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("raw copy: %w", err)
	}
	defer conn.Release()
	start := time.Now()
	if _, err := conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(data), rawCopySQL); err != nil {
		return 0, fmt.Errorf("raw copy: %w", err)
	}
	return time.Since(start), nil
}
