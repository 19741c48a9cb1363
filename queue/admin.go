package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// Stats is what a queue holds. Messages in the log are counted by positions, so
// that gaps, which failed batches leave, count until a node has read past them.
type Stats struct {
	Ready   int64 // may be claimed, of the log
	Claimed int64 // nodes have them, handed out or about to be, also from aside
	Delayed int64 // aside: to be retried, or not due yet; due ones that nobody took too
	Dead    int64
	Nodes   int // leases that last
	Paused  bool
	Head    int64 // position of the last message
	// OldestAge is the age of the oldest message that is neither done nor dead;
	// 0 if there is none.
	OldestAge time.Duration
	// JournalRows is how many rows the journal in use has.
	JournalRows int64
}

// Stats returns what the queue holds. It reads the journal under the queue's
// lock, a few milliseconds: ask every few seconds, not for every message.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	head, err := q.stream.Head(ctx)
	if err != nil {
		return Stats{}, q.explain("read", err)
	}
	s, a, err := q.load(ctx)
	if err != nil {
		return Stats{}, err
	}
	out := Stats{Paused: s.paused, Head: head, Ready: max(0, head-s.top), JournalRows: s.seen - s.base + 1}
	for _, until := range s.leases {
		if until.After(a.now) {
			out.Nodes++
		}
	}
	for _, g := range s.live {
		if there := min(g.hi, head) - g.lo + 1; there > 0 && g.owner == 0 {
			out.Ready += there
		} else if there > 0 {
			out.Claimed += there
		}
	}
	var held int64
	var aside *int64
	if err := q.pool.QueryRow(ctx, sideStatsSQL, q.id).Scan(&out.Dead, &out.Delayed, &held, &aside); err != nil {
		return Stats{}, q.explain("read", err)
	}
	out.Claimed += held
	out.OldestAge, err = q.oldest(ctx, s, a.now, aside)
	return out, err
}

// oldest returns the age of the first message that is not done.
func (q *Queue) oldest(ctx context.Context, s *state, now time.Time, aside *int64) (time.Duration, error) {
	first := s.floor() + 1
	if aside != nil {
		first = min(first, *aside)
	}
	msgs, err := q.stream.Read(ctx, first-1, 1)
	if err != nil {
		return 0, q.explain("read", err)
	}
	if len(msgs) == 0 {
		return 0, nil
	}
	return max(0, now.Sub(msgs[0].Time)), nil
}

// floor returns the position up to which all are done.
func (s *state) floor() int64 {
	if len(s.live) > 0 {
		return s.live[0].lo - 1
	}
	return s.top
}

// Floor returns the position up to which the log is done with: messages up to
// there are acknowledged, or aside, where they are still needed.
func (q *Queue) Floor(ctx context.Context) (int64, error) {
	s, _, err := q.load(ctx)
	if err != nil {
		return 0, err
	}
	return s.floor(), nil
}

// Peek returns the first messages of the log that are not done, at most n, in
// order, and takes none of them. Nodes may be at work on some.
func (q *Queue) Peek(ctx context.Context, n int) (msgs []stream.Message, err error) {
	if n < 1 {
		return nil, fmt.Errorf("%w number: %d, want at least 1", ErrInvalid, n)
	}
	s, _, err := q.load(ctx)
	if err != nil {
		return nil, err
	}
	for after := s.floor(); len(msgs) < n; {
		page, err := q.stream.Read(ctx, after, n)
		if err != nil {
			return nil, q.explain("read", err)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Position
		page = slices.DeleteFunc(page, func(m stream.Message) bool { return s.done(m.Position) })
		msgs = append(msgs, page[:min(len(page), n-len(msgs))]...)
	}
	return msgs, nil
}

// DeadLetter is a message that is handed out no more.
type DeadLetter struct {
	stream.Message
	Attempts int    // how often it was handed out
	Reason   string // of the last refusal
}

// DeadLetters returns the dead letters behind position after, at most n, in
// order.
func (q *Queue) DeadLetters(ctx context.Context, after int64, n int) ([]DeadLetter, error) {
	rows, err := q.pool.Query(ctx, deadSQL, q.id, after, n)
	if err != nil {
		return nil, q.explain("read dead letters of", err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadLetter, err error) {
		return d, row.Scan(&d.Position, &d.Attempts, &d.Reason)
	})
	if err != nil {
		return nil, q.explain("read dead letters of", err)
	}
	for i := range letters {
		msgs, err := q.stream.Read(ctx, letters[i].Position-1, 1)
		if err != nil {
			return nil, q.explain("read dead letters of", err)
		}
		if len(msgs) == 1 && msgs[0].Position == letters[i].Position {
			letters[i].Message = msgs[0]
		}
	}
	return letters, nil
}

// Redrive has the dead letters at these positions, or all if there are none
// given, handed out again, as if never tried, and returns how many there were.
func (q *Queue) Redrive(ctx context.Context, positions ...int64) (int64, error) {
	sql, args := redriveAllSQL, []any{q.id}
	if len(positions) > 0 {
		sql, args = redriveSQL, append(args, positions)
	}
	tag, err := q.pool.Exec(ctx, sql, args...)
	if err != nil {
		return 0, q.explain("redrive", err)
	}
	return tag.RowsAffected(), nil
}

// Pause has nodes hand out nothing more, as soon as they look into the journal
// or write to it; what they handed out may be acknowledged. Enqueueing goes on.
func (q *Queue) Pause(ctx context.Context) error { return q.pause(ctx, 1) }

// Resume ends a Pause.
func (q *Queue) Resume(ctx context.Context) error { return q.pause(ctx, 0) }

func (q *Queue) pause(ctx context.Context, on int64) error {
	_, err := q.write(ctx, request{seen: afterAll, entries: []entry{{kind: kindPause, lo: on}}})
	if err != nil {
		return q.explain("pause", err)
	}
	return nil
}

// afterAll is a sequence behind the journal, for who does not want to read it.
const afterAll = 1<<63 - 1

// PurgeOptions says what Purge removes besides.
type PurgeOptions struct {
	Dead bool // dead letters too
}

// Purge removes all messages that nobody has: the rest of the log, and what is
// delayed or waits to be retried. What nodes have claimed is delivered. It
// returns how many positions of the log and messages aside it removed.
func (q *Queue) Purge(ctx context.Context, opts PurgeOptions) (int64, error) {
	removed, err := q.purgeLog(ctx)
	if err != nil {
		return 0, err
	}
	statements := []string{purgeSideSQL}
	if opts.Dead {
		statements = append(statements, purgeDeadSQL)
	}
	for _, sql := range statements {
		tag, err := q.pool.Exec(ctx, sql, q.id)
		if err != nil {
			return removed, q.explain("purge", err)
		}
		removed += tag.RowsAffected()
	}
	return removed, nil
}

// purgeLog tries until no node has claimed anything in between.
func (q *Queue) purgeLog(ctx context.Context) (removed int64, err error) {
	head, err := q.stream.Head(ctx)
	if err != nil {
		return 0, q.explain("purge", err)
	}
	for failed := 0; ; failed++ {
		s, _, err := q.load(ctx)
		if err != nil {
			return 0, err
		}
		var free []span
		removed = max(0, head-s.top)
		for _, g := range s.owned(0) {
			if g.lo <= head {
				free = append(free, span{g.lo, min(g.hi, head)})
				removed += min(g.hi, head) - g.lo + 1
			}
		}
		a, err := q.write(ctx, request{seen: s.seen, entries: []entry{{kind: kindPurge, hi: max(head, s.top), body: encodeSpans(coalesce(free))}}})
		if err != nil {
			return 0, q.explain("purge", err)
		}
		if a.outcome == written {
			return removed, nil
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return 0, err
		}
	}
}
