package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// write commits the batch, the commits without and with tokens in one transaction
// each, and then the seeks, one by one, and answers all callers. If a highest
// position is after the end of the stream, it tries the lower ones, in one more
// round.
func (gs *Groups) write(ctx context.Context, b offsetBatch) {
	committed, err := gs.writeCommits(ctx, b.highest())
	if err == nil {
		err = gs.writeLower(ctx, b, committed)
	}
	if err == nil {
		gs.tellGone(b, committed)
	}
	for _, c := range b.commits {
		c.answer <- c.answerOf(committed, err)
	}
	for _, c := range b.seeks {
		c.answer <- offsetAnswer{offset: c.position, err: gs.writeSeek(ctx, c)}
	}
}

// tellGone calls OnGone for the groups that have no offset because they were
// dropped.
func (gs *Groups) tellGone(b offsetBatch, committed map[ownedOffset]int64) {
	if gs.cfg.OnGone == nil || len(committed) == len(b.positions) {
		return
	}
	for of := range b.positions {
		if _, found := committed[of]; !found && of.token == 0 {
			gs.cfg.OnGone(of.group)
		}
	}
}

// answerOf returns the answer to a commit, from the offsets that the groups have
// after it. err is why one may be missing.
func (c *offsetCall) answerOf(committed map[ownedOffset]int64, err error) offsetAnswer {
	offset, found := committed[c.ownedOffset]
	switch {
	case !found && err != nil:
		return offsetAnswer{err: err}
	case !found && c.token != 0:
		return offsetAnswer{err: ErrNotOwner}
	case !found:
		return offsetAnswer{err: ErrNotFound}
	case offset == offsetMissing:
		return offsetAnswer{err: ErrIncomplete}
	case offset < c.position: // offsetAhead, too
		return offsetAnswer{err: fmt.Errorf("%w: %d", ErrAhead, c.position)}
	}
	return offsetAnswer{offset: offset}
}

// highest returns the highest position of each offset.
func (b *offsetBatch) highest() offsetPositions {
	var wanted offsetPositions
	for of, h := range b.positions {
		wanted.add(of, h[0])
	}
	return wanted
}

// lower returns the positions below the highest, for offsets whose highest is after
// the end.
func (b *offsetBatch) lower(committed map[ownedOffset]int64) offsetPositions {
	var wanted offsetPositions
	for of, h := range b.positions {
		if committed[of] == offsetAhead {
			for _, position := range h.lower() {
				wanted.add(of, position)
			}
		}
	}
	for _, c := range b.commits { // each call needs its own result
		if committed[c.ownedOffset] == offsetAhead && c.position < b.positions[c.ownedOffset][0] {
			wanted.add(c.ownedOffset, c.position)
		}
	}
	return wanted
}

// writeLower replaces the results of the rejected highest positions by those of the
// lower ones.
func (gs *Groups) writeLower(ctx context.Context, b offsetBatch, committed map[ownedOffset]int64) error {
	wanted := b.lower(committed)
	if len(wanted.free.ids)+len(wanted.owned.ids) == 0 {
		return nil
	}
	again, err := gs.writeCommits(ctx, wanted)
	for _, a := range []offsetArrays{wanted.free, wanted.owned} {
		for i, group := range a.ids {
			delete(committed, ownedOffset{group, a.tokens[i]})
		}
	}
	maps.Copy(committed, again)
	return err
}

// Results of a commit in place of an offset.
const (
	offsetAhead   = -1 // the same value as in tidewire.commit_offsets
	offsetMissing = -2
)

// writeCommits commits the positions and returns the offsets that the groups have
// then. Groups that were dropped, or have another owner, are missing.
func (gs *Groups) writeCommits(ctx context.Context, wanted offsetPositions) (map[ownedOffset]int64, error) {
	free, owned := wanted.free, wanted.owned
	committed := make(map[ownedOffset]int64, len(free.ids)+len(owned.ids))
	if len(free.ids) > 0 {
		var of ownedOffset
		err := gs.writeSome(ctx, committed, commitOffsetsSQL, []any{free.ids, free.positions}, &of, &of.group)
		if err != nil {
			return nil, err
		}
	}
	if len(owned.ids) > 0 {
		var of ownedOffset
		err := gs.writeSome(ctx, committed, commitOwnedSQL, []any{owned.ids, owned.positions, owned.tokens}, &of, &of.group, &of.token)
		if err != nil {
			return nil, err
		}
	}
	return committed, nil
}

// offsetArrays are offsets as query parameters.
type offsetArrays struct {
	ids       []int32
	positions []int64
	tokens    []int64
}

func (a *offsetArrays) add(of ownedOffset, position int64) {
	a.ids, a.positions, a.tokens = append(a.ids, of.group), append(a.positions, position), append(a.tokens, of.token)
}

// offsetPositions are positions to be written, without (free) and with (owned) a
// fencing token.
type offsetPositions struct {
	free, owned offsetArrays
}

func (p *offsetPositions) add(of ownedOffset, position int64) {
	if of.token == 0 {
		p.free.add(of, position)
	} else {
		p.owned.add(of, position)
	}
}

// writeSome runs one query and adds the offsets that it returns to committed.
// columns are the scan targets of the key, fields of of: the group's id and, if
// there is one, the token.
func (gs *Groups) writeSome(ctx context.Context, committed map[ownedOffset]int64, sql string, args []any, of *ownedOffset, columns ...any) error {
	var offset *int64
	var written bool
	columns = append([]any{columns[0], &offset, &written}, columns[1:]...)
	found := make(map[ownedOffset]int64)
	err := gs.persist(ctx, "offsets not committed", sql, args, func(rows pgx.Rows) error {
		clear(found) // drop the rows of an attempt that was not committed
		_, err := pgx.ForEachRow(rows, columns, func() error {
			found[*of] = offsetMissing
			if offset != nil {
				found[*of] = *offset
			}
			if written {
				gs.unchecked++
			}
			return nil
		})
		return err
	})
	maps.Copy(committed, found)
	return err
}

// writeSeek writes a seek. It repeats one whose answer was lost, which counts as a
// later seek.
func (gs *Groups) writeSeek(ctx context.Context, c offsetCall) error {
	var found bool
	err := gs.persist(ctx, "offset not set", seekOffsetSQL, []any{c.group, c.position}, scanOne(&found))
	gs.unchecked++
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

// persist runs the query until PostgreSQL has answered. If the answer of a commit was
// lost, the commit is repeated, which is idempotent.
func (gs *Groups) persist(ctx context.Context, complaint, sql string, args []any, collect func(pgx.Rows) error) error {
	for failed := 0; ; failed++ {
		err := gs.query(ctx, sql, args, collect)
		if err == nil {
			return nil
		}
		if pg.Retryable(err) {
			gs.cfg.Log.Warn(complaint+", trying again", "attempt", failed+1, "error", err)
			if pg.Backoff(ctx, failed) == nil {
				continue
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		gs.cfg.Log.Error(complaint, "error", err)
		return err
	}
}

func (gs *Groups) query(ctx context.Context, sql string, args []any, collect func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return inReadCommitted(ctx, gs.pool, sql, args, collect)
}

// rotate rotates the offset tables when enough rows were written. If it fails, it
// is tried again after some more commits; until then the tables only grow.
func (gs *Groups) rotate(ctx context.Context) {
	if gs.unchecked <= gs.cfg.RotateRows/50 {
		return
	}
	gs.unchecked = 0
	gs.clearing.start(ctx, gs.clear)
	var rotated bool
	err := gs.query(ctx, rotateOffsetsSQL, []any{gs.cfg.RotateRows}, scanOne(&rotated))
	if rotated {
		gs.clearing.start(ctx, gs.clear)
	}
	gs.complain(err)
}

func (gs *Groups) complain(err error) {
	if err != nil && pg.Code(err) != pg.CodeLockNotAvailable && !errors.Is(err, context.Canceled) {
		gs.cfg.Log.Warn("offsets not rotated", "error", err)
	}
}

// clear empties the table that is not in use. Commits continue meanwhile.
func (gs *Groups) clear(ctx context.Context) {
	var old *string
	err := gs.query(ctx, clearOffsetsSQL, nil, scanOne(&old))
	if err == nil && old != nil {
		err = vacuum(ctx, gs.pool, *old)
	}
	gs.complain(err)
}

// clearing runs one background task at a time. While an old snapshot prevents the
// cleanup, each run scans the table without effect, so a run of duration d is
// followed by a pause of 20 d.
type clearing struct {
	busy   sync.WaitGroup
	ends   atomic.Pointer[context.CancelFunc] // cancels the task under way
	paused atomic.Int64                       // pause until this time, in nanoseconds since 1970
}

func (c *clearing) start(ctx context.Context, work func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	if time.Now().UnixNano() < c.paused.Load() || !c.ends.CompareAndSwap(nil, &cancel) {
		cancel()
		return
	}
	c.busy.Go(func() {
		began := time.Now()
		work(ctx)
		now := time.Now()
		c.paused.Store(now.Add(20 * now.Sub(began)).UnixNano())
		cancel()
		c.ends.Store(nil)
	})
}

// stop cancels the task under way and waits for it.
func (c *clearing) stop() {
	if end := c.ends.Load(); end != nil {
		(*end)()
	}
	c.busy.Wait()
}
