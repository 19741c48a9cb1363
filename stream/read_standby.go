package stream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/standby"
)

// endsLast is how long the known ends of a stream are used to decide what is read from a standby.
const endsLast = time.Second

// onStandby reads a stream from a standby (follower reads). Safe for concurrent use.
type onStandby struct {
	reader *standby.Reader

	mu     sync.Mutex // guards the fields below
	stream *Stream    // reads through the pool of the standby; nil before the first read
	ends   ends
	// At the time lackedAt the standby had no full page after this position.
	lacked   int64
	lackedAt time.Time
}

// ends are the first and last positions of a stream at the primary, and its history.
type ends struct {
	head, oldest, history int64
	at                    time.Time // when they were queried
}

// WithStandby returns the stream with a standby, from which ReadPage, and the subscriptions of a Hub with the
// same Reader, read messages that lie at least a page before the end of the stream. All other queries go to
// the primary. reader may be nil.
//
// A reader gets the same messages from both: a page from the standby is full, belongs to the current history,
// and contains no message that the primary has not committed, or has dropped more than a second ago.
func (s *Stream) WithStandby(reader *standby.Reader) *Stream {
	other := *s
	other.standby = nil
	if reader != nil {
		other.standby = &onStandby{reader: reader}
	}
	return &other
}

// standbyPage is page, read from the standby. ok is false if there is no standby, or if its page may differ
// from the primary's. If it is true, there may be more messages.
func (s *Stream) standbyPage(ctx context.Context, after int64, messages, bytes int) (p tailPage, ok bool) {
	on := s.standby
	if on == nil || !on.maybe(after, messages) {
		return p, false
	}
	ok = on.reader.Read(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		e, err := on.endsOf(ctx, s)
		if err != nil || after < e.oldest-1 || e.head-after < int64(messages) {
			return standby.ErrNotAsked // the read from the primary returns the reason
		}
		var more bool
		there := on.through(s, pool).WithMaxMessage(s.largest)
		p, more, err = there.page(ctx, after, messages, bytes, there.continues)
		if _, old := errors.AsType[*TooOldError](err); old || errors.Is(err, ErrNotFound) || errors.Is(err, ErrHistoryLost) || errors.Is(err, ErrTooLarge) {
			return standby.ErrLacks // the read from the primary returns the reason
		}
		if err != nil {
			return err
		}
		return on.check(e, &p, after, more)
	})
	return p, ok
}

// maybe reports whether the standby may have a full page, as far as known.
func (on *onStandby) maybe(after int64, messages int) bool {
	on.mu.Lock()
	defer on.mu.Unlock()
	if after >= on.lacked && time.Since(on.lackedAt) < endsLast {
		return false
	}
	return time.Since(on.ends.at) >= endsLast || on.ends.head-after >= int64(messages)
}

// endsOf returns the ends of the stream, as they were within the last second.
func (on *onStandby) endsOf(ctx context.Context, s *Stream) (e ends, err error) {
	on.mu.Lock()
	e = on.ends
	on.mu.Unlock()
	if time.Since(e.at) < endsLast {
		return e, nil
	}
	e.at = time.Now()
	if err = s.pool.QueryRow(ctx, endsSQL, s.id).Scan(&e.head, &e.oldest, &e.history); err != nil {
		return e, err
	}
	on.mu.Lock()
	on.ends = e
	on.mu.Unlock()
	return e, nil
}

// check returns nil if the page is the same as the primary's.
func (on *onStandby) check(e ends, p *tailPage, after int64, more bool) error {
	if p.history < e.history {
		return standby.ErrHistory
	}
	switch {
	case p.history > e.history, len(p.messages) > 0 && p.messages[len(p.messages)-1].Position > e.head:
		// The ends are outdated, or the standby shows a commit before the primary does: without that message
		// the page would not be full.
		on.forget()
		return standby.ErrLacks
	case !more || len(p.messages) == 0:
		on.mu.Lock()
		on.lacked, on.lackedAt = after, time.Now()
		on.mu.Unlock()
		return standby.ErrLacks
	case after > 0 && after>>historyBits != (p.messages[0].Position-1)>>historyBits:
		return standby.ErrLacks // the primary knows whether messages in between are lost
	}
	return nil
}

// forget drops the known ends, so that the next read queries the primary for them.
func (on *onStandby) forget() {
	on.mu.Lock()
	defer on.mu.Unlock()
	on.ends = ends{}
}

// through returns the stream for reads from the standby. State learnt there, such as the tables that hold the
// stream, may differ from the primary's, so it is kept separately.
func (on *onStandby) through(s *Stream, pool *pgxpool.Pool) *Stream {
	on.mu.Lock()
	defer on.mu.Unlock()
	if on.stream == nil {
		on.stream = s.through(pool)
		on.stream.standby = nil
		on.stream.storage = &storage{}
		on.stream.storage.own.Store(!s.storage.shared())
		on.stream.read = &readSQL{table: s.table.name}
	}
	return on.stream
}
