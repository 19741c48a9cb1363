package eventstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tidewire/tidewire/internal/pg"
)

// Appended is the result of an append. Its events have consecutive positions.
type Appended struct {
	// First and Last are the positions of the first and the last event.
	First, Last int64
	// Duplicate is true if an earlier call with the same RequestID or the same ids stored the events, and this call stored nothing.
	Duplicate bool
}

func appended(first int64, events int, repeated bool) Appended {
	return Appended{First: first, Last: first + int64(events) - 1, Duplicate: repeated}
}

// Count returns the number of events.
func (a Appended) Count() int { return int(a.Last - a.First + 1) }

// Append stores all of the events or none, in this order and at consecutive
// positions. It returns the positions once the events are committed. While
// PostgreSQL is unavailable it waits.
//
// If some of the events have ids, the call is idempotent: a repetition stores
// nothing and returns the positions of the first attempt. AppendAs is idempotent
// without ids.
//
// After ErrInvalid, ErrDuplicateID, ErrClosed, ErrNotFound, or an error of
// PostgreSQL, nothing was stored. If ctx ends first, or after ErrOutcomeUnknown,
// the events may be stored or not. ErrOutcomeUnknown means that Close gave up
// waiting, or that PostgreSQL rejected the Store (its password was changed, say,
// or a privilege revoked) after a connection was lost. ErrTooSlow means that
// PostgreSQL did not write the events within Config.Timeout, and that nothing was
// stored. The caller may change the events once Append has returned.
func (s *Store) Append(ctx context.Context, events ...Event) (Appended, error) {
	return s.append(ctx, events, nil, RequestID{})
}

// AppendIf appends the events if no event matches the condition at the moment at
// which they get their positions. Otherwise it stores nothing and returns a
// ConflictError. Appends under conditions are linearizable across all callers and
// processes: every answer is correct in the single order of the positions.
//
// ErrTooExpensive, also of AppendIfTx, means that PostgreSQL could not check the
// condition within Config.CheckTimeout. The other errors are those of Append.
func (s *Store) AppendIf(ctx context.Context, events []Event, condition Condition) (Appended, error) {
	if err := condition.validate(); err != nil {
		return Appended{}, err
	}
	return s.append(ctx, events, &condition, RequestID{})
}

func (s *Store) append(ctx context.Context, events []Event, condition *Condition, p RequestID) (Appended, error) {
	bytes, err := validateAppend(events)
	if err != nil {
		return Appended{}, err
	}
	c := newCall(events, bytes, condition, &s.frequency)
	c.request = p
	got, err := s.submit(ctx, c)
	if err != nil {
		return Appended{}, err
	}
	if p.Client != "" && mayRepeat(got.err) {
		got, err = s.recallRequest(ctx, p, got)
		if err != nil {
			return Appended{}, err
		}
	}
	if got.err != nil && hasIDs(events) {
		got, err = s.recall(ctx, events, got)
		if err != nil {
			return Appended{}, err
		}
	}
	if got.err != nil {
		return Appended{}, s.withEvents(ctx, got.err, condition)
	}
	return appended(got.first, len(events), got.repeated), nil
}

// maxUndecided is how often a call is checked alone, outside a batch. Each check
// continues at the position at which the last one ended.
const maxUndecided = 20

// submit hands the call to the committer and waits for its answer. err means
// that there is none. A call with an expensive condition comes back undecided:
// submit then checks it alone, and hands it over again.
func (s *Store) submit(ctx context.Context, c *call) (answer, error) {
	for undecided := 0; ; undecided++ {
		got, err := s.hand(ctx, c)
		if err != nil {
			return got, err
		}
		if errors.Is(got.err, errUndecided) {
			if undecided >= maxUndecided {
				return answer{}, s.explain("append to", fmt.Errorf("%w: too much was appended meanwhile", ErrTooExpensive))
			}
			if err := s.checkSlow(ctx, c); err == nil {
				continue
			} else if got.err = err; errors.Is(err, ErrConflict) {
				s.counts.conflicts.Add(1)
			} else if !errors.Is(err, ErrTooExpensive) {
				return answer{}, err
			}
		}
		c.free()
		return got, nil
	}
}

// hand gives the call to the committer once.
func (s *Store) hand(ctx context.Context, c *call) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	if !s.enter() {
		return answer{}, ErrClosed
	}
	c.ctx, c.held, c.epoch, c.outcome = ctx, 0, 0, nil
	err := s.group.Add(ctx, c.events, c.bytes, func(b *gathering) { b.calls = append(b.calls, c) })
	s.leave()
	if err != nil {
		return answer{}, err
	}
	select {
	case got := <-c.done:
		return got, nil
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// mayRepeat reports whether a call may be rejected because an earlier attempt of it is stored.
func mayRepeat(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, errStoredID) || errors.Is(err, ErrTooExpensive)
}

// errStoredID is the answer to a call with the id of a stored event.
var errStoredID = errors.New("eventstore: an id is stored")

// recall checks whether an earlier attempt had stored a rejected append: then the
// append conflicts with its own events. One look is enough: the events that caused
// the rejection are committed, and the earlier attempt cannot commit after them.
// An append that is not found now is not stored.
func (s *Store) recall(ctx context.Context, events []Event, got answer) (answer, error) {
	if !mayRepeat(got.err) {
		return got, nil
	}
	for failed := 0; ; failed++ {
		first, err := s.stored(ctx, events)
		if err == nil && first > 0 {
			err = s.replicated(ctx)
		}
		switch {
		case err == nil && first > 0:
			return answer{first: first, repeated: true}, nil
		case err == nil || errors.Is(err, ErrDuplicateID):
			if err != nil {
				got.err = err
			}
			return got, nil
		case ctx.Err() != nil || !pg.Retryable(err):
			return answer{}, s.explain("look for ids in", err)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return answer{}, err
		}
	}
}

// stored returns the first position of the stored append that consists of exactly
// these events, or 0 if none of their ids is stored. If ids are stored with other
// events the error is a DuplicateError.
func (s *Store) stored(ctx context.Context, events []Event) (first int64, err error) {
	positions, err := s.positionsOf(ctx, events)
	if err != nil || len(positions) == 0 {
		return 0, err
	}
	duplicate := &DuplicateError{}
	for i := range events {
		if position, ok := positions[events[i].ID]; ok {
			first = position - int64(i)
			duplicate = &DuplicateError{ID: events[i].ID, Position: position}
			break
		}
	}
	if first < 1 {
		return 0, duplicate
	}
	all, _, err := s.page(ctx, pageRequest{query: Query{}, after: first - 1, before: first + int64(len(events)), limit: len(events), bytes: 2 * MaxAppend})
	if err != nil {
		return 0, err
	}
	if !slices.EqualFunc(events, all, sameContent) {
		return 0, duplicate
	}
	return first, nil
}

func sameContent(a, b Event) bool {
	return a.ID == b.ID && a.Type == b.Type && a.JSON == b.JSON &&
		slices.Equal(a.Tags, b.Tags) && string(a.Data) == string(b.Data)
}

func (s *Store) positionsOf(ctx context.Context, events []Event) (map[string]int64, error) {
	var ids []string
	for i := range events {
		if events[i].ID != "" {
			ids = append(ids, events[i].ID)
		}
	}
	return s.lookUp(ctx, s.pool, ids)
}

func (s *Store) lookUp(ctx context.Context, db pg.DB, ids []string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	rows, err := db.Query(ctx, s.sql.ids, ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	positions := make(map[string]int64)
	for rows.Next() {
		var id string
		var position int64
		if err := rows.Scan(&id, &position); err != nil {
			return nil, err
		}
		positions[id] = position
	}
	return positions, rows.Err()
}

func hasIDs(events []Event) bool {
	return slices.ContainsFunc(events, func(e Event) bool { return e.ID != "" })
}

// withEvents adds the events that match to a ConflictError, up to
// Condition.WantEvents.
func (s *Store) withEvents(ctx context.Context, err error, condition *Condition) error {
	var conflict *ConflictError
	if condition == nil || condition.WantEvents <= 0 || !errors.As(err, &conflict) {
		return err
	}
	return s.withEventsOf(ctx, err, conflict, condition, s.page)
}

func (s *Store) withEventsOf(ctx context.Context, err error, conflict *ConflictError, condition *Condition, page pageFunc) error {
	options := ReadOptions{After: condition.After, Limit: condition.WantEvents}
	events, _, readErr := s.read(ctx, page, condition.FailIfEventsMatch, options)
	if readErr != nil {
		return fmt.Errorf("%w (its events were not read: %w)", err, readErr)
	}
	conflict.Events = events
	return err
}
