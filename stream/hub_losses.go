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

// lookStreams is of how many streams one query looks what is lost: each costs a lock on its table.
const lookStreams = 500

// baseTimeout bounds the question in which history a position was.
const baseTimeout = 5 * time.Second

// losses are what a Hub knows of messages that failovers have lost: of the streams that somebody follows through it, and of those
// to which an Appender has appended. Safe for concurrent use.
type losses struct {
	mu        sync.Mutex // guards the fields below
	appenders map[*Appender]struct{}
	told      map[int32]int64     // by stream: the highest position that was said to be lost
	owed      map[*Stream][]int64 // positions of a stream that may be lost, and were not looked for
	positions int64
}

// appends has the Hub look after a failover whether the Appender's last messages are lost.
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

// owe has it looked for positions with the next poll.
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

// owes returns whether there is something to look for.
func (l *losses) owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed) > 0
}

// takeOwed returns by stream the positions that are to be looked for, once.
func (l *losses) takeOwed() map[*Stream][]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	owed := l.owed
	l.owed = nil
	return owed
}

// ghosts owes the last positions that were appended in each history before the one with that base.
func (l *losses) ghosts(base int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for a := range l.appenders {
		l.oweLocked(a.stream, a.stream.storage.takeGhosts(base))
	}
}

// count takes in that the messages after last up to ghost are lost, and returns those that were not counted before.
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

// reportLost looks which messages that were known here are lost. It looks later for those that it cannot look for now.
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

// look looks which of so many streams lack messages up to what was known of them.
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

// report tells of messages of a stream that are lost, once. Those of a history before that of the last one were lost before it began.
func (h *Hub) report(s *Stream, last, ghost int64) {
	ctx, cancel := context.WithTimeout(context.Background(), baseTimeout)
	defer cancel()
	var base int64
	if err := h.pool.QueryRow(ctx, baseBeforeSQL, ghost).Scan(&base); err != nil {
		h.cfg.Log.Warn("messages that were committed are lost; how many is looked for again", "stream", s.name, "after", last, "up to", ghost, "error", err)
		h.losses.owe(s, ghost)
		return
	}
	if after, more := h.losses.count(s.id, max(last, base), ghost); more {
		h.cfg.Log.Error("messages that were committed are lost: the standby that took over did not have them",
			"stream", s.name, "after", last, "up to", ghost, "positions", ghost-after)
	}
}

// FindLost looks whether a failover has lost messages that were appended from here, and returns the gap that they
// have left and how many positions of them there were, or zeros. A loss is found once; of several failovers, each call finds those of one. It is for streams whose Appender has no Hub: with one, the Hub
// looks. It costs one query, and two more after a failover. If the error is not nil, call it again.
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

// Lost is how many positions of messages that the Hub knew of were lost by failovers, so far: of streams that somebody
// followed, or to which an Appender with the Hub appended. It counts gaps in between, too.
func (h *Hub) Lost() int64 {
	h.losses.mu.Lock()
	defer h.losses.mu.Unlock()
	return h.losses.positions
}
