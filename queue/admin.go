package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// Stats is what a queue holds. Messages in the log are counted by positions, so
// that gaps, which failed batches leave, count until a node has read past them.
type Stats struct {
	Ready   int64 // positions of the log that may be claimed
	Leased  int64 // claimed by nodes: delivered, or about to be; includes deferred messages
	Delayed int64 // deferred: to be retried, or not due yet, or due and not claimed yet
	Dead    int64
	Nodes   int // valid leases; a node has one for each priority, and for each of its partitions
	Paused  bool
	Head    int64 // position of the last message; the sum if there are several streams
	// OldestAge is the age of the oldest message that is neither done nor dead;
	// 0 if there is none.
	OldestAge time.Duration
	// JournalRows is how many rows the journal in use has.
	JournalRows int64
	// gaps are positions up to Head that failovers have left without messages.
	gaps int64
	// Shards are the same figures for each priority or partition; nil for a queue without these.
	Shards []Stats
}

// RatesSince returns how many messages arrived per second, and how many per
// second were done or purged, since earlier, which are Stats of the same queue
// from the time elapsed ago.
func (s Stats) RatesSince(earlier Stats, elapsed time.Duration) (came, done float64) {
	left := func(s Stats) int64 { return s.Ready + s.Leased + s.Delayed + s.Dead }
	arrived := (s.Head - s.gaps) - (earlier.Head - earlier.gaps)
	gone := arrived - (left(s) - left(earlier))
	return float64(arrived) / elapsed.Seconds(), float64(gone) / elapsed.Seconds()
}

// Stats returns what the queue holds. It reads the journal under the queue's lock,
// for a few milliseconds: call it every few seconds, not for every message. For a
// queue with priorities or partitions it returns the sum of its shards, which are
// read one after the other.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	var sum Stats
	for _, m := range q.members {
		s, err := m.stats(ctx)
		if err != nil {
			return Stats{}, err
		}
		if !q.opts.family() {
			return s, nil
		}
		sum.add(s)
	}
	return sum, nil
}

func (s *Stats) add(m Stats) {
	s.Ready += m.Ready
	s.Leased += m.Leased
	s.Delayed += m.Delayed
	s.Dead += m.Dead
	s.Nodes += m.Nodes
	s.Head += m.Head
	s.gaps += m.gaps
	s.JournalRows += m.JournalRows
	s.Paused = s.Paused || m.Paused
	s.OldestAge = max(s.OldestAge, m.OldestAge)
	s.Shards = append(s.Shards, m)
}

func (q *shard) stats(ctx context.Context) (Stats, error) {
	head, err := q.stream.Head(ctx)
	if err != nil {
		return Stats{}, q.explain("read", err)
	}
	gaps, err := q.stream.Gaps(ctx)
	if err != nil {
		return Stats{}, q.explain("read", err)
	}
	s, a, err := q.load(ctx)
	if err != nil {
		return Stats{}, err
	}
	out := Stats{Paused: s.paused, Head: head, Ready: stream.Between(s.top+1, head, gaps), JournalRows: s.rows}
	out.gaps = head - stream.Between(1, head, gaps)
	for _, until := range s.leases {
		if until.After(a.now) {
			out.Nodes++
		}
	}
	for _, g := range s.live {
		if there := stream.Between(g.lo, min(g.hi, head), gaps); g.owner == 0 {
			out.Ready += there
		} else {
			out.Leased += there
		}
	}
	var held int64
	var deferred *int64
	if err := q.pool.QueryRow(ctx, sideStatsSQL, q.id).Scan(&out.Dead, &out.Delayed, &held, &deferred); err != nil {
		return Stats{}, q.explain("read", err)
	}
	out.Leased += held
	out.OldestAge, err = q.oldest(ctx, s, a.now, deferred)
	return out, err
}

// oldest returns the age of the first message that is not done.
func (q *shard) oldest(ctx context.Context, s *state, now time.Time, deferred *int64) (time.Duration, error) {
	first := s.floor() + 1
	if deferred != nil {
		first = min(first, *deferred)
	}
	msgs, err := q.readFrom(ctx, first-1, 1, readBytes)
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

// Peek returns the first messages of the log that are not done, at most n, in
// order, and claims none of them. The highest priority comes first; partitions come
// one after the other. Nodes may be working on some of the messages. Those that wait
// for a retry, or are not due and were read by a Node, are not among them.
func (q *Queue) Peek(ctx context.Context, n int) ([]stream.Message, error) {
	return q.PeekUpTo(ctx, n, math.MaxInt)
}

// PeekUpTo is Peek with a bound on bytes: it returns no more messages once their
// payloads, keys and headers have that many bytes.
func (q *Queue) PeekUpTo(ctx context.Context, n, bytes int) ([]stream.Message, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w number: %d, want at least 1", ErrInvalid, n)
	}
	var msgs []stream.Message
	held := 0
	for i := range q.members {
		if q.opts.Priorities > 0 {
			i = len(q.members) - 1 - i
		}
		more, err := q.members[i].peek(ctx, n-len(msgs), bytes-held)
		if err != nil {
			return nil, err
		}
		for _, m := range more {
			if held >= bytes {
				return msgs, nil
			}
			held += contentSize(&m)
			m.Position = q.outward(i, m.Position)
			msgs = append(msgs, m)
		}
		if len(msgs) == n {
			break
		}
	}
	return msgs, nil
}

// peekPage is how many messages PeekUpTo reads at a time.
const peekPage = 16

// contentSize is the size of a message in bytes, as far as its sender chooses it.
func contentSize(m *stream.Message) int { return len(m.Payload) + len(m.Key) + len(m.Headers) }

func (q *shard) peek(ctx context.Context, n, bytes int) (msgs []stream.Message, err error) {
	s, _, err := q.load(ctx)
	if err != nil {
		return nil, err
	}
	held := 0
	for after := s.floor(); len(msgs) < n && held < bytes; {
		page, err := q.readFrom(ctx, after, peekPage, min(bytes-held, readBytes))
		if err != nil {
			return nil, q.explain("read", err)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Position
		page = slices.DeleteFunc(page, func(m stream.Message) bool { return s.done(m.Position) })
		for i := range page[:min(len(page), n-len(msgs))] {
			msgs, held = append(msgs, page[i]), held+contentSize(&page[i])
		}
	}
	return msgs, nil
}

// readFrom reads after that position, or after the dropped messages if there are any.
func (q *shard) readFrom(ctx context.Context, after int64, n, bytes int) ([]stream.Message, error) {
	msgs, _, err := q.readPage(ctx, after, n, bytes)
	if old, gone := errors.AsType[*stream.TooOldError](err); gone {
		msgs, _, err = q.readPage(ctx, old.Oldest-1, n, bytes)
	}
	if len(msgs) == 1 && tooLarge(&msgs[0]) {
		msgs[0].Headers = nil
	}
	return msgs, err
}

// Pause stops deliveries: each node stops as soon as it next reads or writes
// the journal. Messages that are delivered already may be acknowledged.
// Enqueueing goes on.
func (q *Queue) Pause(ctx context.Context) error { return q.pause(ctx, 1) }

// Resume ends a Pause.
func (q *Queue) Resume(ctx context.Context) error { return q.pause(ctx, 0) }

func (q *Queue) pause(ctx context.Context, on int64) error {
	for _, m := range q.members {
		_, err := m.write(ctx, m.byPool(), request{seen: afterAll, entries: []entry{{kind: kindPause, lo: on}}})
		if err != nil {
			return m.explain("pause", err)
		}
	}
	return nil
}

// afterAll is a sequence after every row of the journal, for a write that does not read it.
const afterAll = 1<<63 - 1

// PurgeOptions says what else Purge removes.
type PurgeOptions struct {
	Dead bool // dead letters too
}

// Purge removes all messages that no node has claimed: the rest of the log, and the
// messages that are delayed or wait for a retry. Messages that nodes have claimed
// are still delivered. It returns how many positions of the log and deferred
// messages it removed.
func (q *Queue) Purge(ctx context.Context, opts PurgeOptions) (purged int64, err error) {
	for _, m := range q.members {
		n, err := m.purge(ctx, opts)
		if purged += n; err != nil {
			return purged, err
		}
	}
	return purged, nil
}

func (q *shard) purge(ctx context.Context, opts PurgeOptions) (int64, error) {
	removed, err := q.purgeLog(ctx)
	if err != nil {
		return 0, err
	}
	statements := []string{purgeSideSQL}
	if opts.Dead {
		statements = append(statements, purgeDeadSQL)
	}
	for _, sql := range statements {
		n, err := q.change(ctx, sql, q.id)
		if err != nil {
			return removed, q.explain("purge", err)
		}
		removed += n
	}
	return removed, nil
}

// purgeLog tries again until no node claims anything between its read and its write.
func (q *shard) purgeLog(ctx context.Context) (removed int64, err error) {
	head, err := q.stream.Head(ctx)
	if err != nil {
		return 0, q.explain("purge", err)
	}
	gaps, err := q.stream.Gaps(ctx)
	if err != nil {
		return 0, q.explain("purge", err)
	}
	for failed := 0; ; failed++ {
		s, _, err := q.load(ctx)
		if err != nil {
			return 0, err
		}
		var free []span
		removed = stream.Between(s.top+1, head, gaps)
		for _, g := range s.owned(0) {
			if g.lo <= head {
				free = append(free, span{g.lo, min(g.hi, head)})
				removed += stream.Between(g.lo, min(g.hi, head), gaps)
			}
		}
		a, err := q.write(ctx, q.byPool(), request{seen: s.seen, entries: []entry{{kind: kindPurge, hi: max(head, s.top), body: encodeSpans(coalesce(free))}}})
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
