package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// heardDeferred notes the deferred messages that the Node got, for the reader to
// read, and reports whether there are any. The caller holds mu.
func (n *shardNode) heardDeferred(a *answer) (got bool) {
	for _, row := range a.side {
		if _, known := n.deferred[row.position]; known || n.token == 0 {
			continue
		}
		n.deferred[row.position] = struct{}{}
		n.fetch = append(n.fetch, row)
		got = true
	}
	if len(n.fetch) > 0 {
		pg.Signal(n.readNow)
	}
	return got
}

// readDeferred reads the deferred messages that the Node got.
func (n *shardNode) readDeferred(ctx context.Context) error {
	n.mu.Lock()
	token, rows := n.token, n.fetch
	n.fetch, n.fetching = nil, len(rows)
	n.mu.Unlock()
	for len(rows) > 0 {
		run := neighbours(rows)
		msgs, upTo, err := n.readSpan(ctx, span{rows[0].position, rows[run-1].position})
		if err != nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			if token == n.token {
				n.fetch, n.fetching = append(n.fetch, rows...), 0
			}
			return err
		}
		for rows[run-1].position > upTo {
			run--
		}
		n.heardDeferredMessages(token, rows[:run], msgs)
		rows = rows[run:]
	}
	return nil
}

// neighbours returns how many of the first rows one read should get: messages
// between them are read and not used.
func neighbours(rows []sideRow) int {
	run := 1
	for run < len(rows) && rows[run].position > rows[run-1].position && rows[run].position <= rows[run-1].position+4 {
		run++
	}
	return run
}

// readSpan reads the messages of a span from its beginning to upTo: to its end, unless they are large.
func (n *shardNode) readSpan(ctx context.Context, s span) (msgs []stream.Message, upTo int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	msgs, more, err := n.queue.readPage(ctx, s.lo-1, int(s.size()), readBytes)
	if old, gone := errors.AsType[*stream.TooOldError](err); gone {
		n.cfg.Log.Warn("messages dropped from the stream before they were retried", "queue", n.queue.Name(), "oldest", old.Oldest)
		if old.Oldest > s.hi {
			return nil, s.hi, nil
		}
		return n.readSpan(ctx, span{old.Oldest, s.hi})
	}
	if more && len(msgs) > 0 {
		return msgs, msgs[len(msgs)-1].Position, err
	}
	return msgs, s.hi, err
}

func (n *shardNode) heardDeferredMessages(token int64, rows []sideRow, msgs []stream.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if token != n.token {
		return
	}
	n.fetching -= len(rows)
	for _, row := range rows {
		it := &item{Message: stream.Message{Position: row.position}, token: token, tally: row.tally, recorded: row.tally, suspect: row.suspect, deferred: true}
		at, found := slices.BinarySearchFunc(msgs, row.position, func(m stream.Message, p int64) int { return cmp.Compare(m.Position, p) })
		if !found { // no longer in the stream: done
			n.pending.settled = append(n.pending.settled, &settlement{item: it})
			n.later(n.cfg.LaterEvery)
			continue
		}
		it.Message = msgs[at]
		if !n.buryLarge(it) {
			n.queueUp(it)
		}
	}
	n.times.busy = time.Now()
	n.node.changed()
}
