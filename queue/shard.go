package queue

import (
	"errors"
	"fmt"

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
