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
	// LaterEvery is the time within which CommitLater is written: all groups
	// together, once in that time. Defaults to 100 ms.
	LaterEvery time.Duration
	// RotateRows is about how many commits are kept in a table before the
	// offsets move to the other one. Defaults to 50,000, which is 2.6 MB.
	RotateRows int
	// StopTimeout is for how long Run tries to write what it has accepted once
	// its ctx has ended; the callers that still wait then get ErrOutcomeUnknown.
	// Defaults to 10 s.
	StopTimeout time.Duration
	// OnGone, if not nil, is called from Run's goroutine with the ID of a group to which a
	// position was to be committed, also by CommitLater, and which was dropped.
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

// Groups writes the offsets of all groups of a process: what callers commit
// while one transaction is under way gathers for the next. A process needs
// one. Safe for concurrent use.
type Groups struct {
	cfg  GroupsConfig
	pool *pgxpool.Pool

	waited chan struct{} // one slot: somebody waits for an answer
	later  chan struct{} // one slot: a CommitLater has added

	unchecked int // rows written since the tables were looked at; of Run alone
	clearing  clearing

	mu     sync.Mutex // guards the fields below
	closed bool
	batch  offsetBatch
}

// offsetBatch is what gathers for one transaction, and the seeks after it.
type offsetBatch struct {
	positions map[ownedOffset]heights
	commits   []offsetCall
	seeks     []offsetCall
}

// ownedOffset is the offset of a group, by the token of the ownership with which
// it is written, or 0.
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

// NewGroups returns Groups that read and write through the pool. Nothing is
// committed until Run.
func NewGroups(pool *pgxpool.Pool, cfg GroupsConfig) *Groups {
	return &Groups{
		cfg: cfg.withDefaults(), pool: pool,
		waited: make(chan struct{}, 1), later: make(chan struct{}, 1),
		unchecked: cfg.withDefaults().RotateRows, // at the first commit, for those who stop before the second
	}
}

// Run writes until ctx ends and what was accepted by then is answered. Call it
// once.
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
	if position <= 0 { // where every group is already, at least
		return
	}
	if gs.add(func(b *offsetBatch) { b.raise(of, position) }) {
		pg.Signal(gs.later)
	}
}

// add has fill add to the batch that gathers, unless Run has ended.
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
