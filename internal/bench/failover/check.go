package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/jackc/pgx/v5"
)

// readAll reads all messages of a stream, or all events, as any client can.
func readAll(ctx context.Context, node, path string) (all []seen, err error) {
	type row struct {
		Position int64
		Payload  string // of a message
		Data     string // of an event
	}
	for after := int64(0); ; {
		var page struct {
			Messages, Events []row
			Next             int64
		}
		if err := call(ctx, "GET", node, fmt.Sprintf("%s?limit=1000&after=%d", path, after), &page); err != nil {
			return nil, err
		}
		rows := append(page.Messages, page.Events...)
		for _, m := range rows {
			c, err := parseContent([]byte(m.Payload + m.Data))
			if err != nil {
				return nil, err
			}
			all = append(all, seen{m.Position, c})
		}
		if len(rows) == 0 {
			return all, nil
		}
		after = page.Next
	}
}

const eventsPath = "/v1/events"

func messagesPath(stream string) string {
	return "/v1/streams/" + url.PathEscape(stream) + "/messages"
}

// isLost reports whether a node tells a reader at the position that history was lost.
func isLost(ctx context.Context, node, path string, position int64) (bool, error) {
	var page json.RawMessage
	err := call(ctx, "GET", node, fmt.Sprintf("%s?limit=1&after=%d", path, position), &page)
	if refused, ok := errors.AsType[*answerError](err); ok && refused.Code == "history_lost" {
		return refused.Last < position, nil
	}
	return false, err
}

// checkTold checks that readers are told about the loss of each position.
func (r *run) checkTold(ctx context.Context, name, path string, lost []int64) error {
	for _, position := range lost {
		for _, node := range r.load.nodes {
			told, err := isLost(ctx, node, path, position)
			if err != nil {
				return err
			}
			if !told {
				r.ledger.Break(PromiseTold, "%s: position %d is lost, and a reader after it is not told", name, position)
			}
		}
	}
	return nil
}

// checkStreams reads the streams and compares them with the answers and the deliveries.
func (r *run) checkStreams(ctx context.Context, bases []int64) error {
	for _, stream := range r.streams {
		held, err := readAll(ctx, r.load.nodes[0], messagesPath(stream))
		if err != nil {
			return err
		}
		r.ledger.Fence(stream, bases, r.cfg.Quorum)
		lost := r.ledger.Compare(stream, byPosition(held), r.cfg.Quorum)
		if err := r.checkTold(ctx, stream, messagesPath(stream), lost); err != nil {
			return err
		}
		r.lost += len(lost)
		for _, s := range r.subscribers {
			if s.stream == stream {
				s.compare(held)
			}
		}
	}
	return r.checkOffsets(ctx)
}

// checkOffsets checks that no group's offset is lower than the last acknowledged commit.
func (r *run) checkOffsets(ctx context.Context) error {
	for _, reader := range r.readers {
		var page struct {
			Groups []struct {
				Group  string
				Offset int64
			}
		}
		if err := call(ctx, "GET", r.load.nodes[0], "/v1/streams/"+url.PathEscape(reader.stream)+"/groups", &page); err != nil {
			return err
		}
		at := int64(-1)
		for _, g := range page.Groups {
			if g.Group == reader.group {
				at = g.Offset
			}
		}
		if r.cfg.Quorum && at < reader.committed {
			r.ledger.Break(PromiseOffsets, "%s: group %s committed %d, and is at %d", reader.stream, reader.group, reader.committed, at)
		}
	}
	return nil
}

// checkEvents reads the event store and compares it with the answers.
func (r *run) checkEvents(ctx context.Context, bases []int64) error {
	all, err := readAll(ctx, r.load.nodes[0], eventsPath)
	if err != nil {
		return err
	}
	held := byPosition(all)
	r.ledger.Fence(eventStore, bases, r.cfg.Quorum)
	lost := r.ledger.Compare(eventStore, held, r.cfg.Quorum)
	r.lost += len(lost)
	checkSeats(r.ledger, held)
	return r.checkTold(ctx, eventStore, eventsPath, lost)
}

// checkQueue checks the positions of the enqueued messages. settleDown has already checked that they were delivered and
// settled.
func (r *run) checkQueue(ctx context.Context, bases []int64) error {
	r.ledger.Fence(r.queue, bases, r.cfg.Quorum)
	return r.checkTold(ctx, r.queue, messagesPath(r.queue), slices.Sorted(maps.Keys(r.lostOfQueue)))
}

// unsettled returns the positions of messages whose enqueueing was acknowledged, that are not known to be lost, and
// that no consumer has settled yet.
func (r *run) unsettled(ctx context.Context) (left []int64, err error) {
	for _, a := range r.ledger.acknowledged(r.queue) {
		if r.settled.of(a.content) || r.lostOfQueue[a.position] {
			continue
		}
		told, err := isLost(ctx, r.load.nodes[0], messagesPath(r.queue), a.position)
		if err != nil {
			return nil, err
		}
		if told {
			r.lostOfQueue[a.position] = true
			if r.cfg.Quorum {
				r.ledger.Break(PromiseKept, "%s: position %d, %v", r.queue, a.position, a.content)
			}
			continue
		}
		left = append(left, a.position)
	}
	return left, nil
}

// basesOf returns the base of each history except the first: the positions that a history assigns
// come after its base.
func basesOf(ctx context.Context, pair *Pair) (bases []int64, err error) {
	err = on(ctx, pair.primaryServer(), func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT base FROM tidewire.bases() AS base WHERE base > 0 ORDER BY base`)
		if err != nil {
			return err
		}
		bases, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return bases, err
}

func byPosition(all []seen) map[int64]content {
	held := make(map[int64]content, len(all))
	for _, s := range all {
		held[s.position] = s.content
	}
	return held
}

// acknowledged returns the acknowledged requests of a store.
func (l *Ledger) acknowledged(name string) []ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.store(name).acks)
}
