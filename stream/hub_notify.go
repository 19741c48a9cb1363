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
	// pollStreams is how many streams one query reads: each costs a lock on its
	// sequence, and PostgreSQL's lock table holds 6,400 by default.
	pollStreams = 1000
	// announceStreams is how many streams one notification names: PostgreSQL allows
	// 8,000 bytes, an ID has up to 10 digits, and a position up to 19.
	announceStreams = 250
	// crowd is the number of commits from which an announcement does not wait for more.
	crowd = 3
)

// pollAll polls the heads of all followed streams until ctx ends.
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

// joinAgain restores the joined flag after a poll that failed, so that the next one treats the
// feeds as new again.
func (h *Hub) joinAgain(joined bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.joined = h.joined || joined
}

// growth is what a Hub knows about tidewire.growth_seq, a sequence that every append
// moves before it commits. So a poll of the streams has seen everything only if all
// transactions that were under way when the sequence was first seen at this value had
// ended before the poll.
type growth struct {
	at      int64 // value of the sequence
	bound   int64 // transactions that have moved it up to that value have lower IDs
	known   bool
	settled bool // a poll of the streams has seen everything
	skipped int  // number of polls of the streams left out since then
}

// maxSkipped is how many polls of the streams are left out in a row. A standby that takes
// over may lack the transactions that moved the sequence, and later reach the same value
// with other ones.
const maxSkipped = 15

// still reports whether a poll of the streams would show nothing new.
func (g *growth) still(at int64) bool {
	return g.known && g.settled && g.at == at && g.skipped < maxSkipped
}

// askGrowth returns the base of the current history, the value of the sequence, and the lowest ID of a
// transaction under way.
func (h *Hub) askGrowth(ctx context.Context) (history, at, oldest int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err = h.pool.QueryRow(ctx, growthSQL).Scan(&history, &at, &oldest)
	return history, at, oldest, err
}

// newGrowth allocates a transaction ID as the bound: every transaction that has moved
// the sequence to this value has a lower ID. The xmax of a snapshot would not do,
// because it follows the highest ID of the completed transactions only.
func (h *Hub) newGrowth(ctx context.Context, at int64) (growth, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	g := growth{at: at, known: true}
	if err := h.pool.QueryRow(ctx, transactionSQL).Scan(&g.bound); err != nil {
		return growth{}, err
	}
	return g, nil
}

// pollSome reads the heads of some streams, and reports whether all could be read.
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
		case f == nil: // the last user left meanwhile
		case reserved != nil && *reserved < 0: // it cannot be read now
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

// listenWhileBusy listens (LISTEN) to the announcements of other processes while
// any stream is followed, until ctx ends.
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
		// A poll finds commits that were announced before the connection listened.
		pg.Listen(listening, h.pool, pg.StreamChannel, h.cfg.Log, func() { pg.Signal(h.pollNow) }, h.heard)
		waiting.Wait()
	}
}

// waitUntilIdle returns when no stream was followed for IdleTimeout, or when ctx
// ends.
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

// heard processes a notification: the sender's ID, the IDs of streams that have grown,
// and after headsMark their last positions, or 0 where they are not known. Anyone may
// send on the channel, so what is malformed is ignored. Earlier versions send no
// positions, and ignore the rest from the mark on.
func (h *Hub) heard(payload string) {
	ids, heads, _ := strings.Cut(payload, headsMark)
	words, lasts := strings.Fields(ids), strings.Fields(heads)
	if len(words) == 0 || words[0] == strconv.FormatUint(h.id, 16) {
		return
	}
	for i, word := range words[1:] {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return
		}
		var last int64
		if i < len(lasts) {
			last, _ = strconv.ParseInt(lasts[i], 10, 64)
		}
		if f := h.feedOf(int32(id)); f != nil {
			f.heard(last)
		}
	}
}

const headsMark = " |"

// toAnnounce notes that a stream has grown up to a position, or 0 if that is not known.
func (h *Hub) toAnnounce(id int32, last int64) {
	h.mu.Lock()
	before, waits := h.unannounced[id]
	if waits && (before == 0 || last != 0 && last < before) {
		last = before
	}
	h.unannounced[id] = last
	if h.waiting++; h.waiting == crowd {
		pg.Signal(h.crowded)
	}
	h.mu.Unlock()
	pg.Signal(h.announce)
}

// announceAll announces the streams of Notify to other processes (NOTIFY), until
// ctx ends. A failed announcement is not repeated: the others poll.
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

// pause waits for AnnounceEvery, and once more if few commits wait: each
// announcement costs every listener a query, which pays only for many commits.
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
	case <-h.crowded: // the signal may be stale
	case <-ctx.Done():
	}
}

func (h *Hub) announceOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for grown := range slices.Chunk(h.takeUnannounced(), announceStreams) {
		if _, err := h.pool.Exec(ctx, announceSQL, h.announcement(grown)); err != nil {
			return err
		}
	}
	return nil
}

// grownStream is a stream that has grown up to a position, or 0 if that is not known.
type grownStream struct {
	id   int32
	last int64
}

// announcement returns the payload of a notification: see heard.
func (h *Hub) announcement(grown []grownStream) string {
	payload := strconv.AppendUint(nil, h.id, 16)
	for _, g := range grown {
		payload = strconv.AppendInt(append(payload, ' '), int64(g.id), 10)
	}
	payload = append(payload, headsMark...)
	for _, g := range grown {
		payload = strconv.AppendInt(append(payload, ' '), g.last, 10)
	}
	return string(payload)
}

func (h *Hub) takeUnannounced() []grownStream {
	h.mu.Lock()
	defer h.mu.Unlock()
	grown := make([]grownStream, 0, len(h.unannounced))
	for id, last := range h.unannounced {
		grown = append(grown, grownStream{id, last})
	}
	clear(h.unannounced)
	h.waiting = 0
	select {
	case <-h.crowded:
	default:
	}
	return grown
}
