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

// storage says where the messages of a stream are, and the records of its clients: in
// tables that streams share, or in tables of its own. A stream gets these when it is hot,
// large or has a large batch. It keeps them for good.
//
// Safe for concurrent use.
type storage struct {
	// own is as far as is known here: another process may have moved the stream, or a standby
	// taken over that lacks the move.
	own   atomic.Bool
	stays atomic.Bool // tables could not be made, and it does without them

	// head is the last position that was stored from here, or 0: others may have gone on. ghosts are the same in histories
	// before, which head has left.
	head   atomic.Int64
	ghosts pg.Ghosts
	told   atomic.Int64 // by FindLost: the highest position that it found to be lost

	mu    sync.Mutex
	began time.Time // of a second
	rows  int       // since then
	hot   atomic.Bool
}

// hotRows is with how many messages in a second a stream gets tables of its own. Making
// them takes as long as storing some 200 (docs/benchmarks/streams.md).
const hotRows = 1000

// codeOwnTables is what tidewire.take_shared raises.
const codeOwnTables = "TW010"

// stored notes that so many messages were stored, the first of them at this position.
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

// knownHead returns where the stream ends as far as that is known, or 0.
func (s *storage) knownHead() int64 {
	if s == nil {
		return 0
	}
	return s.head.Load()
}

// takeGhosts returns the last position that was stored from here in each history before the one with that base, once, from the lowest on.
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
// that is no stream's has no storage.
func (s *storage) shared() bool { return s != nil && !s.own.Load() }

// outgrown reports whether the stream is to get tables of its own.
func (s *storage) outgrown() bool { return s.shared() && s.hot.Load() && !s.stays.Load() }

// locks is how many locks a transaction takes for the stream.
func (s *storage) locks() int {
	if s.shared() {
		return 1
	}
	return ownLocks
}

// wantsOwn reports whether the batch is to be written to tables of the stream's own.
func (w *batchWriter) wantsOwn(b *rowBatch) bool {
	return w.needsOwn() || !w.storage.stays.Load() && (w.storage.outgrown() || w.prefersCopy(b) || w.line.stages(b))
}

// needsOwn reports whether batches cannot be written elsewhere.
func (w *batchWriter) needsOwn() bool { return w.cfg.Method != Auto }

// moveTimeout bounds one attempt to move a stream: a million messages take some 7 s.
const moveTimeout = 5 * time.Minute

// moveFor gives the stream tables of its own if the batch wants them. If it needs them, it
// tries until PostgreSQL refuses, or ctx ends; else the batch can be written as it is.
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
			w.endFrozen(ctx)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return err
		}
		failed++
	}
	return nil
}

// stay notes that the stream stays where it is, for good if PostgreSQL makes no tables.
func (w *batchWriter) stay(err error) {
	if code := pg.Code(err); code == "" || code == pg.CodeUndefinedTable || pg.Retryable(err) {
		return
	}
	w.storage.stays.Store(true)
	w.cfg.Log.Warn("stream gets no tables of its own", "stream", w.table.lock, "error", err)
}

// moves bounds the streams of a pool that are moved at a time: large ones take a session for
// seconds, and others need one.
var moves pg.PerPool[chan struct{}]

// errOtherMoves says that another stream is being moved.
var errOtherMoves = errors.New("another stream is being moved")

// move gives the stream tables of its own, on a session that was set aside if there is one.
// While another stream is moved, one that needs them waits for its turn; for another the
// error is errOtherMoves.
func (w *batchWriter) move(ctx context.Context, needed bool) error {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	w.on.Release() // a stream that moves needs one
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

// sendShared sends five statements, one more with requests to record, and one Sync.
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
	rows[0] = id // in place of their number
	p.SendQueryPrepared(stmtInsertShared, rows, binaryFormat, binaryFormat)
	free()
	p.SendQueryPrepared(pg.StmtCommit, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	return b.taken(p, before)
}

// Reads of shared streams are the same for all, and so prepared once on each connection.
const (
	readSharedSQL     = `SELECT ` + messageColumns + ` FROM tidewire.read_shared($4, $1, $2, $3, NULL) AS candidate`
	readSharedPageSQL = `SELECT ` + messageColumns + ` FROM tidewire.read_shared($5, $1, $2, $3, $4) AS candidate`

	// sharedOfFmt is what a query on a stream's table reads from instead.
	sharedOfFmt = `(SELECT * FROM tidewire.shared_message WHERE stream = %d) AS m`
)
