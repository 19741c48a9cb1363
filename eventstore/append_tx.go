package eventstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeIsolation is the SQLSTATE that a store's append function raises in a transaction
// that is not READ COMMITTED.
const codeIsolation = "TW021"

// AppendTx appends within the caller's own transaction: see AppendIfTx.
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, events ...Event) (Appended, error) {
	return s.appendTx(ctx, tx, events, nil)
}

// AppendIfTx is AppendIf within the caller's own transaction: the events are
// stored if and when the transaction commits. It takes the store's lock for the
// rest of the transaction, also if the condition fails. All other appends wait for
// the commit, so the append should be the last statement of the transaction. An
// expensive condition is first checked without the lock, in the same transaction.
//
// The transaction must be READ COMMITTED; any other isolation level gets
// ErrIsolation. After ErrIsolation, ErrConflict, ErrHistoryLost, ErrDuplicateID,
// ErrTooExpensive and ErrInvalid the transaction can continue. Events with ids that
// are stored are always a DuplicateError here: the transaction that stored them did
// the rest of its work as well.
//
// With synchronous replication the caller's COMMIT waits for the standbys. If somebody cancels that
// wait, the COMMIT still succeeds. PostgreSQL then sends a warning, which only OnNotice of the
// connection's configuration receives.
//
// After the commit the caller may call Notify, so that subscriptions of this
// process receive the events at once. Otherwise they receive them with their next
// poll.
func (s *Store) AppendIfTx(ctx context.Context, tx pgx.Tx, events []Event, condition Condition) (Appended, error) {
	if err := condition.validate(); err != nil {
		return Appended{}, err
	}
	return s.appendTx(ctx, tx, events, &condition)
}

func (s *Store) appendTx(ctx context.Context, tx pgx.Tx, events []Event, condition *Condition) (Appended, error) {
	bytes, err := validateAppend(events)
	if err != nil {
		return Appended{}, err
	}
	c := newCall(events, bytes, condition, &s.frequency)
	defer c.free()
	r, err := s.sendTx(ctx, tx, c)
	if err == nil && undecided(r) {
		// The rollback of the savepoint has released the lock.
		var found conflicts
		if found, err = s.checkAlone(ctx, tx, c); err == nil {
			r = result{calls: found.calls, positions: found.positions, types: found.types}
			if c.decided(found) == nil {
				r, err = s.sendTx(ctx, tx, c)
			}
		}
	}
	switch {
	case pg.Code(err) == codeIsolation:
		return Appended{}, fmt.Errorf("append to event store %q: %w", s.name, ErrIsolation)
	case err != nil && !s.isIDViolation(err):
		return Appended{}, s.explain("append to", err)
	}
	if len(c.eventID) > 0 && (err != nil || len(r.calls) > 0) {
		stored, lookErr := s.lookUp(ctx, tx, c.eventID)
		if lookErr != nil {
			return Appended{}, s.explain("look for ids in", lookErr)
		}
		for _, id := range c.eventID {
			if position, ok := stored[id]; ok {
				return Appended{}, &DuplicateError{ID: id, Position: position}
			}
		}
	}
	if undecided(r) {
		return Appended{}, s.explain("append to", fmt.Errorf("%w: too much was appended meanwhile", ErrTooExpensive))
	}
	if len(r.calls) > 0 {
		return Appended{}, s.withEventsTx(ctx, tx, s.refusal(r.positions[0], r.types[0]), condition)
	}
	s.sweepNowAndThen()
	return appended(r.head+1, len(events), false), nil
}

// withEventsTx adds the matching events to a conflict. It reads them on the
// transaction's own connection: another connection would not see the events of this
// transaction, and the wait for one might be long while this one holds the lock. A
// failure does not change the transaction.
func (s *Store) withEventsTx(ctx context.Context, tx pgx.Tx, refusal error, condition *Condition) error {
	conflict, ok := refusal.(*ConflictError)
	if !ok || condition.WantEvents <= 0 {
		return refusal
	}
	page := func(ctx context.Context, r pageRequest) (events []Event, found pageResult, err error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		defer cancel()
		err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			var err error
			events, found, err = s.pageOn(ctx, savepoint.Conn(), r)
			return err
		})
		return events, found, err
	}
	return s.withEventsOf(ctx, conflict, conflict, condition, page)
}

// undecided reports whether the check of the only call gave up.
func undecided(r result) bool { return len(r.calls) > 0 && r.positions[0] == 0 }

// errRollback makes pgx roll back a savepoint.
var errRollback = errors.New("eventstore: roll back")

// sendTx appends in a savepoint, which is kept only if the call was decided.
func (s *Store) sendTx(ctx context.Context, tx pgx.Tx, c *call) (r result, err error) {
	err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		var err error
		if r, err = s.sendOn(ctx, savepoint, c); err == nil && undecided(r) {
			err = errRollback
		}
		return err
	})
	if errors.Is(err, errRollback) {
		err = nil
	}
	return r, err
}

// sendOn runs the store's append on the connection of the transaction, as a
// batch of one call.
func (s *Store) sendOn(ctx context.Context, tx pgx.Tx, c *call) (r result, err error) {
	conn := tx.Conn()
	statement, err := conn.Prepare(ctx, s.sql.append, s.sql.append)
	if err != nil {
		return r, err
	}
	w := newWriter(s)
	w.encode(&batch{calls: []*call{c}})
	reader := conn.PgConn().ExecPrepared(ctx, statement.Name, w.params.values(), binaryFormat, binaryFormat)
	for reader.NextRow() {
		r.scan(reader.Values())
	}
	_, err = reader.Close()
	return r, err
}
