package eventstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeIsolation is what a store's append raises in a transaction that is not
// READ COMMITTED.
const codeIsolation = "TW021"

// AppendTx is Append within the caller's own transaction: see AppendIfTx.
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, events ...Event) (Appended, error) {
	return s.appendTx(ctx, tx, events, nil)
}

// AppendIfTx is AppendIf within the caller's own transaction: the events are
// stored if and when that commits. It takes the store's lock, for the rest of
// the transaction, also when the condition fails: all other appends wait for
// the commit, so it should be the last thing that the transaction does. A
// condition that is expensive is looked up first, in the same transaction.
//
// The transaction must be READ COMMITTED; any other isolation gets
// ErrIsolation. After ErrIsolation, ErrConflict, ErrHistoryLost, ErrDuplicateID,
// ErrTooExpensive and ErrInvalid the transaction may go on. Events with ids that are stored are always a
// DuplicateError here: the transaction that stored them did the rest of its
// work as well.
//
// With synchronous replication it is the caller's COMMIT that waits for the standbys. If somebody cancels that
// wait it succeeds all the same, with a warning that only OnNotice of the connection's configuration gets.
//
// Subscriptions of this process learn of the events by Notify, which the caller
// may call once the transaction is committed, and else by their next poll.
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
	c := newCall(events, bytes, condition, &s.popular)
	defer c.free()
	r, err := s.sendTx(ctx, tx, c)
	if err == nil && undecided(r) {
		// The lock was given back with the savepoint.
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

// withEventsTx reads the events that the condition wants on the transaction's
// own connection: another one would not see what the transaction has appended,
// and might have to wait for it while it holds the lock. A failure leaves the
// transaction as it was.
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

// undecided reports whether the check of the only call has given up.
func undecided(r result) bool { return len(r.calls) > 0 && r.positions[0] == 0 }

// errBack has a savepoint rolled back.
var errBack = errors.New("eventstore: roll back")

// sendTx appends in a savepoint, which is only kept if the call was decided.
func (s *Store) sendTx(ctx context.Context, tx pgx.Tx, c *call) (r result, err error) {
	err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		var err error
		if r, err = s.sendOn(ctx, savepoint, c); err == nil && undecided(r) {
			err = errBack
		}
		return err
	})
	if errors.Is(err, errBack) {
		err = nil
	}
	return r, err
}

// sendOn runs the store's append on the connection of the transaction, as a
// batch of its own.
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
