package queue

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// member is one of the queues that a Queue consists of: a stream, and a journal
// of who has done what of it. An ordinary Queue is its only member.
type shard struct {
	pool   *pgxpool.Pool
	stream *stream.Stream
	id     int32  // the stream's
	index  int    // its priority or partition
	sent   func() // is told of each request to write to the journal
}

func newShard(pool *pgxpool.Pool, s *stream.Stream, index int) *shard {
	return &shard{pool: pool, stream: s, id: s.ID(), index: index, sent: func() {}}
}

// Name is that of the stream.
func (m *shard) Name() string { return m.stream.Name() }

// explain says what was done to which queue, and that it is gone if it is.
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
