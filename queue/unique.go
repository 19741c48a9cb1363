package queue

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

// Unique has a message stored once in a period: Enqueue of another with the same
// key and period, by any process, stores nothing. Messages of different
// priorities, or with keys of different lanes, do not count as the same.
//
// Some 100 bytes are kept for each key as long as the queue.
type Unique struct {
	// Key names the job, 1 byte to stream.MaxKey. None: the message is not unique.
	Key string
	// Period, 1 s to stream.KeepRequests. Periods follow one another by
	// PostgreSQL's clock, from multiples of their length on: of two messages a
	// moment apart both are stored if one period ends between them.
	Period time.Duration
}

// ErrDuplicate is what a DuplicateError is: a message with that unique key is
// stored in this period already, perhaps done.
var ErrDuplicate = errors.New("queue: duplicate of a unique message")

// DuplicateError tells the position of the message that is stored.
type DuplicateError struct{ Position int64 }

func (e *DuplicateError) Error() string { return fmt.Sprintf("%v at %d", ErrDuplicate, e.Position) }
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }

// uniqueHeader holds a number by which an Enqueue knows its own message.
const uniqueHeader = "tidewire_unique"

// noneUnique refuses unique messages where they cannot be had.
func noneUnique(msgs []Message) error {
	for i := range msgs {
		if msgs[i].Unique != (Unique{}) {
			return fmt.Errorf("%w unique message: want an Enqueue of its own, with a key", ErrInvalid)
		}
	}
	return nil
}

func (u Unique) validate() error {
	if len(u.Key) > stream.MaxKey {
		return fmt.Errorf("%w unique key: %d bytes, want at most %d", ErrInvalid, len(u.Key), stream.MaxKey)
	}
	if u.Period < time.Second || u.Period > stream.KeepRequests {
		return fmt.Errorf("%w unique period: %v, want %v to %v", ErrInvalid, u.Period, time.Second, stream.KeepRequests)
	}
	return nil
}

// producer is who stores messages with that key, request by request. The period
// is a part of the name, for sequences of another would be lower.
func (u Unique) producer() string {
	return fmt.Sprintf("unique/%d/%x", u.Period.Microseconds(), sha256.Sum256([]byte(u.Key)))
}

// enqueueUnique stores the message as the request of its key and period, and
// looks whose message is there then: package stream does not tell.
func (p *Producer) enqueueUnique(ctx context.Context, m *Message) (int64, error) {
	if err := m.Unique.validate(); err != nil {
		return 0, err
	}
	to, ok, err := p.queue.route(m)
	if err != nil {
		return 0, err
	}
	as := stream.Producer{ID: m.Unique.producer()}
	if !ok {
		to = p.queue.LaneOf(as.ID)
	}
	plain, err := m.withDue()
	own := strconv.FormatUint(rand.Uint64(), 36)
	if err == nil {
		plain, err = withHeader(plain, uniqueHeader, own)
	}
	if err != nil {
		return 0, err
	}
	err = whileAway(ctx, func() error {
		return p.queue.pool.QueryRow(ctx, periodSQL, m.Unique.Period.Microseconds()).Scan(&as.Sequence)
	})
	if err != nil {
		return 0, p.queue.explain("enqueue to", err)
	}
	stored, err := p.appender.Partition(to).AppendAs(ctx, as, plain)
	if err != nil {
		return 0, enqueueError(err)
	}
	return p.queue.whose(ctx, to, stored.First, own)
}

// whileAway does it, and again while PostgreSQL is away, until ctx ends.
func whileAway(ctx context.Context, do func() error) error {
	for failed := 0; ; failed++ {
		err := do()
		if !pg.Retryable(err) {
			return err
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return err
		}
	}
}

// whose returns the position of the message, with a DuplicateError if it is not
// the one with that header. It is stored: that it cannot be read yet is no error.
func (q *Queue) whose(ctx context.Context, to int, position int64, own string) (int64, error) {
	outward := q.outward(to, position)
	var msgs []stream.Message
	err := whileAway(ctx, func() (err error) {
		msgs, err = q.members[to].readFrom(ctx, position-1, 1)
		return err
	})
	if err != nil {
		return 0, q.explain("read", err)
	}
	if len(msgs) == 1 && msgs[0].Position == position && headerOf(msgs[0].Headers, uniqueHeader) == own {
		return outward, nil
	}
	return outward, &DuplicateError{Position: outward}
}
