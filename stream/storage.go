package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// storage says which tables hold the messages of a stream and its request records: the
// shared tables, or its own. A stream gets its own tables when it is hot, large or has a
// large batch, and keeps them permanently.
//
// Safe for concurrent use.
type storage struct {
	// own: the stream has its own tables, as far as this process knows. Another process may
	// have moved the stream, or a standby without the move may have taken over.
	own   atomic.Bool
	stays atomic.Bool // tables could not be created, so the stream stays in the shared ones

	// head is the last position that this process has stored, or 0; other processes may have stored later
	// ones. ghosts are the last positions in earlier histories, from before head entered a new one.
	head   atomic.Int64
	ghosts pg.Ghosts
	told   atomic.Int64 // the highest position that FindLost has reported as lost

	mu    sync.Mutex
	began time.Time // start of the current second
	rows  int       // since then
	hot   atomic.Bool
}

// hotRows is the number of messages in a second from which a stream gets its own
// tables. Creating them takes as long as storing some 200 messages
// (docs/benchmarks/streams.md).
const hotRows = 1000

// codeOwnTables is raised by tidewire.take_shared if the stream has its own tables.
const codeOwnTables = "TW010"

// stored notes that rows messages were stored, the first of them at position first.
func (s *storage) stored(first int64, rows int) {
	if s == nil {
		return
	}
	if before := s.head.Swap(first + int64(rows) - 1); before>>historyBits != (first-1)>>historyBits {
		s.ghosts.Add(before) // another history may have begun in between
	}
	if s.own.Load() || s.hot.Load() || s.stays.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.began) > time.Second {
		s.began, s.rows = now, 0
	}
	s.rows += rows
	if s.rows >= hotRows {
		s.hot.Store(true)
	}
}

// knownHead returns the last known position of the stream, or 0.
func (s *storage) knownHead() int64 {
	if s == nil {
		return 0
	}
	return s.head.Load()
}

// takeGhosts returns, in ascending order, the last position that this process has stored in each history
// before the one with that base, and clears them.
func (s *storage) takeGhosts(base int64) []int64 {
	if s == nil {
		return nil
	}
	if head := s.head.Load(); head <= base {
		s.ghosts.Add(head)
	}
	return s.ghosts.Take()
}

// shared reports whether messages are written to the shared table. A table of messages
// that does not belong to a stream has no storage (nil).
func (s *storage) shared() bool { return s != nil && !s.own.Load() }

// outgrown reports whether the stream should get its own tables.
func (s *storage) outgrown() bool { return s.shared() && s.hot.Load() && !s.stays.Load() }

// locks is how many locks a transaction takes for the stream.
func (s *storage) locks() int {
	if s.shared() {
		return 1
	}
	return ownLocks
}

// wantsOwn reports whether the batch should be written to the stream's own tables.
func (w *batchWriter) wantsOwn(b *rowBatch) bool {
	return w.needsOwn() || !w.storage.stays.Load() && (w.storage.outgrown() || w.prefersCopy(b) || w.line.stages(b))
}

// needsOwn reports whether batches can be written only to the stream's own tables.
func (w *batchWriter) needsOwn() bool { return w.cfg.Method != Auto }

// moveTimeout bounds one attempt to move a stream: a million messages take some 7 s.
const moveTimeout = 5 * time.Minute

// moveFor moves the stream to its own tables if the batch should be written there. If
// needsOwn, it retries until PostgreSQL returns a permanent error, or ctx ends; otherwise
// a failure is no error, and the batch is written to the shared table.
func (w *batchWriter) moveFor(ctx context.Context, b *rowBatch) error {
	lock := pg.LockWait{Bound: w.cfg.LockTimeout}
	for failed := 0; w.storage.shared() && w.wantsOwn(b); {
		err := w.move(ctx, w.needsOwn())
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !w.needsOwn():
			w.stay(err)
			return nil
		case !pg.Retryable(err):
			return err
		case lock.GoesOn(err):
			continue
		}
		w.cfg.Log.Warn("stream not moved, trying again", "stream", w.table.lock, "attempt", failed+1, "error", err)
		if pg.Code(err) == pg.CodeLockNotAvailable {
			w.freeLock(ctx)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return err
		}
		failed++
	}
	return nil
}

// stay handles a failed move: if the error is permanent, the stream stays in the shared
// table permanently.
func (w *batchWriter) stay(err error) {
	if code := pg.Code(err); code == "" || code == pg.CodeUndefinedTable || pg.Retryable(err) {
		return
	}
	w.storage.stays.Store(true)
	w.cfg.Log.Warn("stream not moved to its own tables", "stream", w.table.lock, "error", err)
}

// moves lets one stream of a pool be moved at a time: a large one takes a connection for
// seconds, and other streams need connections.
var moves pg.PerPool[chan struct{}]

// errOtherMoves says that another stream is being moved.
var errOtherMoves = errors.New("another stream is being moved")

// move moves the stream to its own tables, on the connection for slow work if there is one
// (HoldSlow). While another stream is moved, it waits for its turn if needed is true;
// otherwise the error is errOtherMoves.
func (w *batchWriter) move(ctx context.Context, needed bool) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	w.on.Release() // the stream that is being moved may need this connection
	slot := moves.Join(w.pool, func() chan struct{} { return make(chan struct{}, 1) })
	defer moves.Leave(w.pool)
	if err := enterSlot(ctx, slot, needed); err != nil {
		return err
	}
	defer func() { <-slot }()
	if err := w.on.HoldSlow(ctx); err != nil {
		return err
	}
	defer w.on.Release()
	s := w.on.Session()
	if err := s.Connect(ctx); err != nil {
		return err
	}
	sql := fmt.Sprintf(ownStreamFmt, s.Settings(pg.ShortWait), w.table.lock)
	if _, err := s.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return s.Recover(ctx, err)
	}
	w.storage.own.Store(true)
	w.head = 0
	return nil
}

// enterSlot takes the slot, or waits for it until ctx ends.
func enterSlot(ctx context.Context, slot chan<- struct{}, wait bool) error {
	if !wait {
		select {
		case slot <- struct{}{}:
			return nil
		default:
			return errOtherMoves
		}
	}
	return pg.Acquire(ctx, slot)
}

// sendShared sends one transaction in a pipeline, with one more statement if there are
// requests to record, and one Sync.
func (w *batchWriter) sendShared(ctx context.Context, b *rowBatch, wait time.Duration) error {
	s := w.on.Session()
	p := s.Conn().PgConn().StartPipeline(ctx)
	before := s.SendBegin(p, wait)
	id := int4(w.table.lock)
	p.SendQueryPrepared(stmtTakeShared, [][]byte{id, int8(int64(b.Len())), int8(w.id), int8(w.number)}, binaryFormat, binaryFormat)
	if len(b.requests) > 0 {
		p.SendQueryPrepared(stmtRecordRequests, b.recordParams(w.table.lock), nil, nil)
	}
	rows, free := w.insertParams(b)
	rows[0] = id // in place of the number of rows
	p.SendQueryPrepared(stmtInsertShared, rows, binaryFormat, binaryFormat)
	free()
	p.SendQueryPrepared(pg.StmtCommit, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	return b.taken(p, before)
}

// The reads of all shared streams are the same statements, so they are prepared once on
// each connection.
const (
	readSharedSQL     = `SELECT ` + messageColumns + ` FROM tidewire.read_shared($4, $1, $2, $3, NULL) AS candidate`
	readSharedPageSQL = `SELECT ` + pageColumns + ` FROM tidewire.read_shared($6, $1, $2, $3, $4) AS candidate`

	// sharedOfFmt replaces the name of a stream's own table in a query.
	sharedOfFmt = `(SELECT * FROM tidewire.shared_message WHERE stream = %d) AS m`
)
