package stream

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

// GroupsConfig configures Groups.
type GroupsConfig struct {
	// LaterEvery is the interval in which positions of CommitLater are written, for
	// all groups together. Defaults to 100 ms.
	LaterEvery time.Duration
	// RotateRows is roughly how many commits a table holds before the offsets move
	// to the other table. Defaults to 50,000, which is 2.6 MB.
	RotateRows int
	// StopTimeout is how long Run tries to write accepted commits after its ctx has
	// ended; the callers that still wait after that get ErrOutcomeUnknown. Defaults
	// to 10 s.
	StopTimeout time.Duration
	// OnGone, if not nil, is called from Run's goroutine with the ID of a dropped group
	// for which a position should have been committed, also by CommitLater.
	OnGone func(group int32)
	// Log receives a line for each attempt that failed. Defaults to none.
	Log *slog.Logger
}

func (c GroupsConfig) withDefaults() GroupsConfig {
	if c.LaterEvery <= 0 {
		c.LaterEvery = 100 * time.Millisecond
	}
	if c.RotateRows <= 0 {
		c.RotateRows = 50_000
	}
	if c.StopTimeout <= 0 {
		c.StopTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Groups writes the offsets of all groups of a process, with group commit: commits
// that arrive while one transaction is under way are written by the next. A process
// needs one Groups. Safe for concurrent use.
type Groups struct {
	cfg  GroupsConfig
	pool *pgxpool.Pool

	waited chan struct{} // one slot: a caller waits for an answer
	later  chan struct{} // one slot: a CommitLater has added a position

	unchecked int // rows written since the last check for rotation; used only by Run
	clearing  clearing

	mu     sync.Mutex // guards the fields below
	closed bool
	batch  offsetBatch
}

// offsetBatch is the open batch: commits for one transaction, and the seeks after
// it.
type offsetBatch struct {
	positions map[ownedOffset]heights
	commits   []offsetCall
	seeks     []offsetCall
}

// ownedOffset identifies the offset of a group with the fencing token of the
// Assignment under which it is written; the token is 0 without one.
type ownedOffset struct {
	group int32
	token int64
}

type offsetCall struct {
	ownedOffset
	position int64
	answer   chan<- offsetAnswer // one slot
}

type offsetAnswer struct {
	offset int64
	err    error
}

// NewGroups returns Groups that read and write through the pool. Commits wait until
// Run.
func NewGroups(pool *pgxpool.Pool, cfg GroupsConfig) *Groups {
	return &Groups{
		cfg: cfg.withDefaults(), pool: pool,
		waited: make(chan struct{}, 1), later: make(chan struct{}, 1),
		unchecked: cfg.withDefaults().RotateRows, // checks at the first commit, for processes that stop before the second
	}
}

// Run writes until ctx ends, and then answers all accepted commits. Call it once.
func (gs *Groups) Run(ctx context.Context) {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	patience := time.AfterFunc(never, abandon)
	defer patience.Stop()
	defer gs.clearing.stop()
	defer context.AfterFunc(ctx, func() { patience.Reset(gs.cfg.StopTimeout) })()
	var due <-chan time.Time
	for {
		select {
		case <-gs.later:
			if due == nil {
				due = time.After(gs.cfg.LaterEvery)
			}
			continue
		case <-gs.waited:
		case <-due:
		case <-ctx.Done():
			gs.close()
			gs.write(work, gs.take())
			return
		}
		due = nil
		gs.write(work, gs.take())
		gs.rotate(work)
	}
}

// never is longer than any process runs.
const never = 1 << 62 * time.Nanosecond

func (gs *Groups) commit(ctx context.Context, of ownedOffset, position int64) (int64, error) {
	return gs.await(ctx, position, func(b *offsetBatch, answer chan<- offsetAnswer) {
		b.raise(of, position)
		b.commits = append(b.commits, offsetCall{of, position, answer})
	})
}

func (gs *Groups) seek(ctx context.Context, group int32, position int64) error {
	_, err := gs.await(ctx, position, func(b *offsetBatch, answer chan<- offsetAnswer) {
		b.seeks = append(b.seeks, offsetCall{ownedOffset{group: group}, position, answer})
	})
	return err
}

// await adds a call to the batch and waits for its answer.
func (gs *Groups) await(ctx context.Context, position int64, add func(*offsetBatch, chan<- offsetAnswer)) (int64, error) {
	if position < 0 {
		return 0, fmt.Errorf("%w position: %d, want at least 0", ErrInvalid, position)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	answer := make(chan offsetAnswer, 1)
	if !gs.add(func(b *offsetBatch) { add(b, answer) }) {
		return 0, ErrClosed
	}
	pg.Signal(gs.waited)
	select {
	case got := <-answer:
		return got.offset, got.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (gs *Groups) commitLater(of ownedOffset, position int64) {
	if position <= 0 { // every group is there already
		return
	}
	if gs.add(func(b *offsetBatch) { b.raise(of, position) }) {
		pg.Signal(gs.later)
	}
}

// add calls fill with the open batch, unless Run has ended.
func (gs *Groups) add(fill func(*offsetBatch)) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.closed {
		return false
	}
	fill(&gs.batch)
	return true
}

func (b *offsetBatch) raise(of ownedOffset, position int64) {
	if b.positions == nil {
		b.positions = make(map[ownedOffset]heights)
	}
	h := b.positions[of]
	h.add(position)
	b.positions[of] = h
}

func (gs *Groups) take() offsetBatch {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	b := gs.batch
	gs.batch = offsetBatch{}
	return b
}

func (gs *Groups) close() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.closed = true
}
