package eventstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// codeIsolation is what a store's append raises in a transaction that is not
// READ COMMITTED.
const codeIsolation = "TW021"

// AppendTx is Append within the caller's own transaction: see AppendIfTx.
func (s *Store) AppendTx(ctx context.Context, tx pgx.Tx, events ...Event) ([]int64, error) {
	return s.appendTx(ctx, tx, events, nil)
}

// AppendIfTx is AppendIf within the caller's own transaction: the events are
// stored if and when that commits. It takes the store's lock, for the rest of
// the transaction, also when the condition fails: all other appends wait for
// the commit, so it should be the last thing that the transaction does.
//
// The transaction must be READ COMMITTED; any other isolation gets
// ErrIsolation. After ErrIsolation, ErrConflict, ErrDuplicateID and ErrInvalid
// the transaction may go on. Events with ids that are stored are always a
// DuplicateError here: the transaction that stored them did the rest of its
// work as well.
//
// Subscriptions of this process learn of the events by Notify, which the caller
// may call once the transaction is committed, and else by their next poll.
func (s *Store) AppendIfTx(ctx context.Context, tx pgx.Tx, events []Event, condition Condition) ([]int64, error) {
	if err := condition.validate(); err != nil {
		return nil, err
	}
	return s.appendTx(ctx, tx, events, &condition)
}

func (s *Store) appendTx(ctx context.Context, tx pgx.Tx, events []Event, condition *Condition) ([]int64, error) {
	bytes, err := validateAppend(events)
	if err != nil {
		return nil, err
	}
	c := newCall(events, bytes, condition, &s.popular)
	defer c.free()
	var r result
	err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		var err error
		r, err = s.sendTx(ctx, savepoint, c)
		return err
	})
	switch {
	case pg.Code(err) == codeIsolation:
		return nil, fmt.Errorf("append to event store %q: %w", s.name, ErrIsolation)
	case err != nil && !s.isIDViolation(err):
		return nil, s.explain("append to", err)
	}
	if len(c.eventID) > 0 && (err != nil || len(r.calls) > 0) {
		stored, lookErr := s.lookUp(ctx, tx, c.eventID)
		if lookErr != nil {
			return nil, s.explain("look for ids in", lookErr)
		}
		for _, id := range c.eventID {
			if position, ok := stored[id]; ok {
				return nil, &DuplicateError{ID: id, Position: position}
			}
		}
	}
	if len(r.calls) > 0 {
		return nil, s.withEvents(ctx, &ConflictError{Position: r.positions[0], Type: r.types[0]}, condition)
	}
	return consecutive(r.head+1, len(events)), nil
}

// sendTx runs the store's append on the connection of the transaction, as a
// batch of its own.
func (s *Store) sendTx(ctx context.Context, tx pgx.Tx, c *call) (r result, err error) {
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
