package stream

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// pollStreams is how many streams one query asks for: each costs a lock on
	// its sequence, of which PostgreSQL's table holds 6,400 by default.
	pollStreams = 1000
	// announceStreams is how many one notification names: 8,000 bytes is what
	// PostgreSQL allows, and an id has up to 10 digits.
	announceStreams = 700
	// crowd is how many commits are announced without waiting for more.
	crowd = 3
)

// pollAll asks for the heads of all streams followed, again and again, until
// ctx ends.
func (h *Hub) pollAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failing := false; ; {
		select {
		case <-timer.C:
		case <-h.pollNow:
			h.growth = growth{}
		case <-ctx.Done():
			return
		}
		err := h.pollOnce(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			h.cfg.Log.Warn("streams not polled", "error", err) // once, until it works again
		}
		failing = err != nil
		timer.Reset(pg.Jitter(h.cfg.Poll))
	}
}

func (h *Hub) pollOnce(ctx context.Context) error {
	feeds, joined := h.toPoll()
	if len(feeds) == 0 && !h.losses.appended() {
		return nil
	}
	if joined {
		h.growth = growth{}
	}
	history, at, oldest, err := h.askGrowth(ctx)
	if err != nil {
		h.growth = growth{}
		h.joinAgain(joined)
		return err
	}
	h.enter(ctx, history, feeds, joined)
	if len(feeds) == 0 {
		h.growth = growth{}
		return nil
	}
	if h.growth.still(at) {
		h.growth.skipped++
		return nil
	}
	if !h.growth.known || h.growth.at != at {
		if h.growth, err = h.newGrowth(ctx, at); err != nil {
			return err
		}
	}
	whole := true
	for some := range slices.Chunk(feeds, pollStreams) {
		all, err := h.pollSome(ctx, some)
		if err != nil {
			h.growth = growth{}
			return err
		}
		whole = whole && all
	}
	h.growth.settled, h.growth.skipped = whole && oldest >= h.growth.bound, 0
	return nil
}

// toPoll returns the feeds there are, and whether one of them is new.
func (h *Hub) toPoll() (all []*feed, joined bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all = make([]*feed, 0, len(h.feeds))
	for _, f := range h.feeds {
		all = append(all, f)
	}
	joined, h.joined = h.joined, false
	return all, joined
}

// joinAgain is for a poll that failed: the next one finds the feeds that it was to look at first.
func (h *Hub) joinAgain(joined bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joined = h.joined || joined
}

// growth is what a Hub knows of tidewire.growth_seq, which moves when a stream grows:
// before the commit. So a look at the streams has shown everything only if all
// transactions were over before it that were under way when the sequence was first seen
// there.
type growth struct {
	at      int64 // of the sequence
	bound   int64 // transactions that have moved it as far as that have lower numbers
	known   bool
	settled bool // a look has shown everything
	skipped int  // looks since then
}

// maxSkipped is how many looks at the streams are left out in a row. A standby that takes
// over may lack what moved the sequence, and be at the same place again, after others.
const maxSkipped = 15

// still reports whether a look would show nothing new.
func (g *growth) still(at int64) bool {
	return g.known && g.settled && g.at == at && g.skipped < maxSkipped
}

// askGrowth returns the base of the history that goes on, where the sequence is, and the lowest number of
// a transaction that is under way.
func (h *Hub) askGrowth(ctx context.Context) (history, at, oldest int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = h.pool.QueryRow(ctx, growthSQL).Scan(&history, &at, &oldest)
	return history, at, oldest, err
}

// newGrowth takes a number for a transaction of its own: whoever has moved the sequence
// there had one by then, which is lower. That a snapshot begins with what has not begun
// does not help: its upper bound is only that of the transactions that are over.
func (h *Hub) newGrowth(ctx context.Context, at int64) (growth, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	g := growth{at: at, known: true}
	if err := h.pool.QueryRow(ctx, transactionSQL).Scan(&g.bound); err != nil {
		return growth{}, err
	}
	return g, nil
}

// pollSome asks for the heads of so many, and reports whether all could be looked at.
func (h *Hub) pollSome(ctx context.Context, feeds []*feed) (whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ids, settled := make([]int32, len(feeds)), make([]int64, len(feeds))
	for i, f := range feeds {
		ids[i], settled[i] = f.stream.id, f.settledAt()
	}
	rows, err := h.pool.Query(ctx, headsSQL, ids, settled)
	if err != nil {
		return false, err
	}
	whole = true
	var id int32
	var reserved, head *int64
	_, err = pgx.ForEachRow(rows, []any{&id, &reserved, &head}, func() error {
		f := h.feedOf(id)
		switch {
		case f == nil: // left meanwhile
		case reserved != nil && *reserved < 0: // it cannot be looked at now
			whole = false
		case head == nil:
			f.fail(f.stream.explain("follow", ErrNotFound))
		default:
			f.polled(*reserved, *head)
		}
		return nil
	})
	return whole, err
}

// listenWhileBusy listens to what other processes announce while anybody
// follows a stream, until ctx ends.
func (h *Hub) listenWhileBusy(ctx context.Context) {
	for {
		busy, _ := h.occupation()
		select {
		case <-busy:
		case <-ctx.Done():
			return
		}
		listening, stop := context.WithCancel(ctx)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			h.waitUntilIdle(listening)
			stop()
		})
		// A poll finds what was announced before the connection listened.
		pg.Listen(listening, h.pool, pg.StreamChannel, h.cfg.Log, func() { pg.Signal(h.pollNow) }, h.heard)
		waiting.Wait()
	}
}

// waitUntilIdle returns when nobody has followed a stream for IdleTimeout, or
// ctx ends.
func (h *Hub) waitUntilIdle(ctx context.Context) {
	for {
		_, idle := h.occupation()
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
		busy, _ := h.occupation()
		timer := time.NewTimer(h.cfg.IdleTimeout)
		select {
		case <-timer.C:
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-busy:
			timer.Stop()
		}
	}
}

// heard takes a notification: the sender, and the streams that have grown.
// Anybody may send on the channel: what is not a number is none of ours.
func (h *Hub) heard(payload string) {
	words := strings.Fields(payload)
	if len(words) == 0 || words[0] == strconv.FormatUint(h.id, 16) {
		return
	}
	for _, word := range words[1:] {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return
		}
		if f := h.feedOf(int32(id)); f != nil {
			f.hint()
		}
	}
}

// announceAll tells other processes of what Notify was told, until ctx ends.
// A hint that cannot be sent is not repeated: the others poll.
func (h *Hub) announceAll(ctx context.Context) {
	for {
		select {
		case <-h.announce:
		case <-ctx.Done():
			return
		}
		if err := h.announceOnce(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Log.Warn("commits not announced", "error", err)
		}
		h.pause(ctx)
	}
}

// pause waits for AnnounceEvery, and once more while few wait: each
// announcement costs the readers a query, and is worth it for many.
func (h *Hub) pause(ctx context.Context) {
	timer := time.NewTimer(h.cfg.AnnounceEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	h.mu.Lock()
	many := h.waiting >= crowd
	h.mu.Unlock()
	if many {
		return
	}
	timer.Reset(h.cfg.AnnounceEvery)
	select {
	case <-timer.C:
	case <-h.crowded: // perhaps of before
	case <-ctx.Done():
	}
}

func (h *Hub) announceOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for ids := range slices.Chunk(h.takeUnannounced(), announceStreams) {
		payload := strconv.AppendUint(nil, h.id, 16)
		for _, id := range ids {
			payload = append(payload, ' ')
			payload = strconv.AppendInt(payload, int64(id), 10)
		}
		if _, err := h.pool.Exec(ctx, announceSQL, string(payload)); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hub) takeUnannounced() []int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]int32, 0, len(h.unannounced))
	for id := range h.unannounced {
		ids = append(ids, id)
	}
	clear(h.unannounced)
	h.waiting = 0
	select {
	case <-h.crowded:
	default:
	}
	return ids
}
