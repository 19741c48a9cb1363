package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// shard is one of the members of a Queue: a stream, and a journal of claims and
// acknowledgements. An ordinary Queue has one.
type shard struct {
	pool   *pgxpool.Pool
	stream *stream.Stream
	id     int32  // the stream's
	index  int    // its priority or partition
	sent   func() // called before each request to the journal; tests count with it
}

func newShard(pool *pgxpool.Pool, s *stream.Stream, index int) *shard {
	return &shard{pool: pool, stream: s, id: s.ID(), index: index, sent: func() {}}
}

// readBytes bounds one read: see stream.ReadPage.
const readBytes = 1 << 20

// readPage reads messages after a position within bounds, and reports whether there may be more. Of a message that is larger than
// LimitMessages permits it returns a stub: see tooLarge.
func (m *shard) readPage(ctx context.Context, after int64, limit, bytes int) (msgs []stream.Message, more bool, err error) {
	msgs, more, err = m.stream.ReadRangePage(ctx, after, limit, bytes)
	if large, is := errors.AsType[*stream.TooLargeError](err); is {
		stub := stream.Message{Position: large.Position, Time: large.Time, Headers: strconv.AppendInt(nil, large.Size, 10)}
		return []stream.Message{stub}, true, nil
	}
	return msgs, more, err
}

// tooLarge reports whether a message is a stub of one that is too large to be read. Its headers are the number of bytes of its payload, and
// so no object.
func tooLarge(m *stream.Message) bool { return len(m.Headers) > 0 && m.Headers[0] != '{' }

// Name returns the name of the stream.
func (m *shard) Name() string { return m.stream.Name() }

// explain adds what was done to which queue, and turns the error into ErrNotFound if the queue is
// gone.
func (m *shard) explain(what string, err error) error { return explain(what, m.Name(), err) }

func explain(what, name string, err error) error {
	if pg.Code(err) == codeNotFound || pg.Code(err) == pg.CodeUndefinedTable || errors.Is(err, stream.ErrNotFound) {
		err = ErrNotFound
	}
	if lost, ok := errors.AsType[*pgconn.PgError](err); ok && lost.Code == codeJournalLost {
		err = fmt.Errorf("%w: %w. %s", ErrJournalLost, err, lost.Hint)
	}
	return fmt.Errorf("%s queue %q: %w", what, name, err)
}
