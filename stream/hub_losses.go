package stream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// lookStreams is the number of streams that one query checks for losses: each costs a lock on its table.
const lookStreams = 500

// baseTimeout bounds the query for the history of a position.
const baseTimeout = 5 * time.Second

// losses are the messages lost in failovers that a Hub knows about: of streams that are followed through it,
// and of streams to which an Appender with the Hub has appended. Safe for concurrent use.
type losses struct {
	mu        sync.Mutex // guards the fields below
	appenders map[*Appender]struct{}
	told      map[int32]int64     // by stream: the highest position that was reported as lost
	owed      map[*Stream][]int64 // positions of a stream that may be lost and are not checked yet
	positions int64
}

// appends registers the Appender: after a failover the Hub checks whether its last messages are lost.
func (l *losses) appends(a *Appender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.appenders == nil {
		l.appenders = make(map[*Appender]struct{})
	}
	l.appenders[a] = struct{}{}
}

func (l *losses) stops(a *Appender) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.appenders, a)
}

// appended returns whether there are Appenders.
func (l *losses) appended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.appenders) > 0
}

// owe adds positions to be checked with the next poll.
func (l *losses) owe(s *Stream, ghosts ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oweLocked(s, ghosts)
}

func (l *losses) oweLocked(s *Stream, ghosts []int64) {
	if len(ghosts) == 0 {
		return
	}
	if l.owed == nil {
		l.owed = make(map[*Stream][]int64)
	}
	l.owed[s] = append(l.owed[s], ghosts...)
}

// owes reports whether there are positions to check.
func (l *losses) owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed) > 0
}

// takeOwed returns the positions to check, by stream, and clears them.
func (l *losses) takeOwed() map[*Stream][]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	owed := l.owed
	l.owed = nil
	return owed
}

// ghosts adds the last positions that were appended in each history before the one with that base to the
// positions to check.
func (l *losses) ghosts(base int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range l.appenders {
		l.oweLocked(a.stream, a.stream.storage.takeGhosts(base))
	}
}

// count notes that the messages after last up to ghost are lost. It returns the position after which they
// were not counted before, and whether there are any.
func (l *losses) count(id int32, last, ghost int64) (after int64, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == nil {
		l.told = make(map[int32]int64)
	}
	if last = max(last, l.told[id]); ghost <= last {
		return last, false
	}
	l.told[id] = ghost
	l.positions += ghost - last
	return last, true
}

// reportLost checks which messages that were known here are lost. On an error it keeps the positions for the
// next poll.
func (h *Hub) reportLost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	owed := h.losses.takeOwed()
	for some := range slices.Chunk(slices.Collect(maps.Keys(owed)), lookStreams) {
		if err := h.look(ctx, some, owed); err != nil {
			for s, ghosts := range owed {
				h.losses.owe(s, ghosts...) // those that were counted are not counted again
			}
			return err
		}
	}
	return nil
}

// look checks which of some streams lack messages up to their known positions.
func (h *Hub) look(ctx context.Context, some []*Stream, known map[*Stream][]int64) error {
	var ids []int32
	var ghosts []int64
	streams := make(map[int32]*Stream, len(some))
	for _, s := range some {
		streams[s.id] = s
		for _, ghost := range known[s] {
			ids, ghosts = append(ids, s.id), append(ghosts, ghost)
		}
	}
	rows, err := h.pool.Query(ctx, lostUpToSQL, ids, ghosts)
	if err != nil {
		return err
	}
	var id int32
	var ghost, last int64
	_, err = pgx.ForEachRow(rows, []any{&id, &ghost, &last}, func() error {
		h.report(streams[id], last, ghost)
		return nil
	})
	return err
}

// report logs and counts lost messages of a stream, once. It counts only positions of the history of ghost:
// messages of earlier histories were lost, and reported, before that history began.
func (h *Hub) report(s *Stream, last, ghost int64) {
	ctx, cancel := context.WithTimeout(context.Background(), baseTimeout)
	defer cancel()
	var base int64
	if err := h.pool.QueryRow(ctx, baseBeforeSQL, ghost).Scan(&base); err != nil {
		h.cfg.Log.Warn("committed messages are lost; counting them failed and is tried again", "stream", s.name, "after", last, "up to", ghost, "error", err)
		h.losses.owe(s, ghost)
		return
	}
	if after, more := h.losses.count(s.id, max(last, base), ghost); more {
		h.cfg.Log.Error("messages that were committed are lost: the standby that took over did not have them",
			"stream", s.name, "after", last, "up to", ghost, "positions", ghost-after)
	}
}

// FindLost checks whether a failover has lost messages that this process has appended, and returns the gap
// that they have left and its number of lost positions, or zeros. It returns each loss once; after several
// failovers, each call returns the loss of one. It is for streams whose Appender has no Hub: a Hub does this
// check automatically. It costs one query, and two more after a failover. If the error is not nil, call it
// again.
func (s *Stream) FindLost(ctx context.Context) (lost Gap, positions int64, err error) {
	if s.storage.knownHead() == 0 {
		return Gap{}, 0, nil // nothing was appended
	}
	var base int64
	if err := s.pool.QueryRow(ctx, enterHistorySQL).Scan(&base); err != nil {
		return Gap{}, 0, s.explain("look for losses of", err)
	}
	ghosts := s.storage.takeGhosts(base)
	for i, ghost := range ghosts {
		if ghost <= s.storage.told.Load() {
			continue
		}
		err = s.pool.QueryRow(ctx, lostGapSQL, s.id, ghost).Scan(&lost.After, &positions)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			s.storage.ghosts.Add(ghosts[i:]...)
			return Gap{}, 0, s.explain("look for losses of", err)
		}
		s.storage.ghosts.Add(ghosts[i+1:]...)
		s.storage.told.Store(ghost)
		lost.UpTo = ghost
		return lost, positions, nil
	}
	return Gap{}, 0, nil
}

// Lost is the number of positions known to the Hub that failovers have lost so far: of streams that were
// followed, or to which an Appender with the Hub appended. Gaps between the messages count, too.
func (h *Hub) Lost() int64 {
	h.losses.mu.Lock()
	defer h.losses.mu.Unlock()
	return h.losses.positions
}
