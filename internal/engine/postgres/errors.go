package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// engineErrors maps errors of packages stream, queue and eventstore to those of package engine. The first match counts.
var engineErrors = []struct {
	is, as error
}{
	{stream.ErrOutcomeUnknown, engine.ErrOutcomeUnknown}, // first, because it may also wrap ErrNotFound of a dropped stream
	{queue.ErrOutcomeUnknown, engine.ErrOutcomeUnknown},
	{eventstore.ErrOutcomeUnknown, engine.ErrOutcomeUnknown},
	{queue.ErrInvalid, engine.ErrInvalid},
	{queue.ErrExists, engine.ErrExists},
	{queue.ErrStreamInUse, engine.ErrExists},
	{queue.ErrLeaseLost, engine.ErrLeaseLost},
	{queue.ErrSettled, engine.ErrLeaseLost},
	{queue.ErrNotFound, engine.ErrNotFound},
	{queue.ErrCrossPartition, engine.ErrCrossPartition},
	{queue.ErrJournalLost, engine.ErrJournalLost},
	{stream.ErrNotFound, engine.ErrNotFound},
	{stream.ErrInvalid, engine.ErrInvalid},
	{stream.ErrExists, engine.ErrExists},
	{stream.ErrNotKeyed, engine.ErrNotKeyed},
	{stream.ErrSequenceTooOld, engine.ErrSequenceTooOld},
	{stream.ErrCrossPartition, engine.ErrCrossPartition},
	{stream.ErrPartitioned, engine.ErrPartitioned},
	{stream.ErrPartition, engine.ErrPartitioned},
	{stream.ErrNotOwner, engine.ErrFenced},
	{stream.ErrAhead, engine.ErrAhead},
	{stream.ErrIncomplete, engine.ErrIncomplete},
	{eventstore.ErrNotFound, engine.ErrNoEventStore},
	{eventstore.ErrInvalid, engine.ErrInvalid},
	{eventstore.ErrSequenceTooOld, engine.ErrSequenceTooOld},
	{eventstore.ErrDuplicateID, engine.ErrDuplicateID},
	{eventstore.ErrTooManyProjections, engine.ErrBusy},
	{eventstore.ErrTooExpensive, engine.ErrTooExpensive},
}

// engineError maps an error to one of package engine.
func engineError(err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*engine.Error](err); is {
		return err
	}
	if told := detailed(err); told != nil {
		return fmt.Errorf("%w: %w", told, err)
	}
	for _, known := range engineErrors {
		if errors.Is(err, known.is) {
			return fmt.Errorf("%w: %w", known.as, err)
		}
	}
	// An error of PostgreSQL is permanent until somebody changes the database, unless it is temporary: PostgreSQL is
	// away, or read-only while another server becomes the primary.
	if pg.Code(err) != "" && !pg.Retryable(err) {
		return fmt.Errorf("%w: %w", engine.ErrRefused, err)
	}
	return err
}

// engineErrorsOf maps each of several errors.
func engineErrorsOf(errs []error) []error {
	for i, err := range errs {
		errs[i] = engineError(err)
	}
	return errs
}

// detailed returns the engine error with details for err, or nil.
func detailed(err error) error {
	if e, ok := errors.AsType[*stream.TooOldError](err); ok {
		return &engine.TooOldError{Oldest: e.Oldest}
	}
	if e, ok := errors.AsType[*stream.TooLargeError](err); ok {
		return &engine.TooLargeError{Position: e.Position, Size: e.Size}
	}
	if e, ok := errors.AsType[*stream.HistoryLostError](err); ok {
		return &engine.HistoryLostError{Last: e.Last}
	}
	if e, ok := errors.AsType[*eventstore.HistoryLostError](err); ok {
		return &engine.HistoryLostError{Last: e.Last}
	}
	if e, ok := errors.AsType[*eventstore.ConflictError](err); ok {
		return &engine.ConflictError{Position: e.Position, Type: e.Type}
	}
	if e, ok := errors.AsType[*eventstore.InvalidError](err); ok {
		return &engine.FieldError{Field: wireField(e.Field), Problem: e.Problem}
	}
	if e, ok := errors.AsType[*stream.InvalidError](err); ok {
		return &engine.FieldError{Field: e.Field, Problem: e.Problem}
	}
	return nil
}

// wireField returns the name of a field on the wire.
func wireField(field string) string {
	if rest, ok := strings.CutPrefix(field, "condition.items"); ok {
		return "condition.query.items" + rest
	}
	if rest, ok := strings.CutPrefix(field, "projections"); ok {
		return "queries" + strings.Replace(rest, "].query", "]", 1)
	}
	return strings.TrimPrefix(field, "request.")
}
