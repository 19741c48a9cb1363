package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// maxFound bounds how many streams are looked up at a time.
const maxFound = 1000

// finder looks up streams by name. It batches concurrent look-ups into two queries (like
// group commit, for reads), because a node opens thousands of streams after its start.
// Safe for concurrent use.
type finder struct {
	pool *pgxpool.Pool

	mu      sync.Mutex
	wanted  []*wanted
	finding bool // a goroutine is running the look-ups
}

// wanted is one waiting look-up.
type wanted struct {
	name  string
	found chan foundStream // has room for one
}

type foundStream struct {
	stream *stream.Stream
	err    error
}

// find returns a stream, or ErrQueueStream if it holds the messages of a queue, which
// clients may only read. The result was true at some moment after the call.
func (f *finder) find(ctx context.Context, name string) (*stream.Stream, error) {
	if err := stream.ValidName(name); err != nil {
		return nil, fmt.Errorf("look up stream: %w", err)
	}
	w := &wanted{name, make(chan foundStream, 1)}
	f.mu.Lock()
	f.wanted = append(f.wanted, w)
	if !f.finding {
		f.finding = true
		go f.run()
	}
	f.mu.Unlock()
	select {
	case found := <-w.found:
		return found.stream, found.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run does the waiting look-ups until there are none.
func (f *finder) run() {
	for {
		f.mu.Lock()
		some := f.wanted[:min(len(f.wanted), maxFound)]
		f.wanted = f.wanted[len(some):]
		f.finding = len(some) > 0
		f.mu.Unlock()
		if len(some) == 0 {
			return
		}
		f.findAll(some)
	}
}

// findAll does one batch of look-ups.
func (f *finder) findAll(all []*wanted) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	names := make([]string, len(all))
	for i, w := range all {
		names[i] = w.name
	}
	streams, err := stream.LookupAll(ctx, f.pool, names)
	var owned []string
	if err == nil {
		owned, err = queue.OwnedStreams(ctx, f.pool, names)
	}
	ofQueue := make(map[string]bool, len(owned))
	for _, name := range owned {
		ofQueue[name] = true
	}
	for _, w := range all {
		found := streams[w.name]
		switch {
		case err != nil:
			w.found <- foundStream{err: err}
		case found == nil:
			w.found <- foundStream{err: fmt.Errorf("look up stream %q: %w", w.name, stream.ErrNotFound)}
		case ofQueue[w.name]:
			w.found <- foundStream{err: fmt.Errorf("%w: %q", engine.ErrQueueStream, w.name)}
		default:
			w.found <- foundStream{stream: found}
		}
	}
}
