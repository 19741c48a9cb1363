package eventstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// ErrSequenceTooOld: the request may be one whose record is not kept any more.
// It was not stored now. The client is to go on with higher sequences.
var ErrSequenceTooOld = errors.New("eventstore: sequence is too old")

// KeepRequests is for how long requests that carried a RequestID can be
// repeated, at least: their records go when they are between this and twice
// this old, and stay longer while nobody appends to the store. Of a time in which
// PostgreSQL was away, two minutes count.
const KeepRequests = 10 * time.Minute

// RequestID names one request to append, so that it can be repeated: for a store
// there is only ever one request with this Client and Sequence.
type RequestID struct {
	// Client names the program that appends, 1 to MaxName bytes of valid UTF-8 without NUL. A process that
	// goes on with the sequences of an earlier one takes its name; others choose
	// one that nobody has, such as a UUID. Of each, some 100 bytes are kept as long as the store.
	Client string
	// Sequence is the client's number for the request, at least 0. They should
	// grow; gaps, and another order than that of the numbers, are allowed. But
	// once the record of a sequence was given up, a lower one gets
	// ErrSequenceTooOld, also if it was never used.
	Sequence int64
}

func (request RequestID) validate() error {
	switch {
	case request.Client == "" || len(request.Client) > MaxName:
		return invalid("request.client", "%d bytes, want 1 to %d", len(request.Client), MaxName)
	case !isText(request.Client):
		return invalid("request.client", notText)
	case request.Sequence < 0:
		return invalid("request.sequence", "%d, want at least 0", request.Sequence)
	}
	return nil
}

// AppendAs is Append as the request of that name: it can be repeated, in any
// process and as often as one likes, at the same time as well. The events are
// stored once, and each of the calls returns their positions. Only the
// Client and Sequence count: a repetition must have as many events as the
// first, for it is answered with the positions of those.
//
// This holds for KeepRequests. An older repetition, or what might be one, is not
// stored, and the error is ErrSequenceTooOld. All other errors are as with
// Append; after any of them the request can be repeated, and one that was
// refused is looked at anew.
func (s *Store) AppendAs(ctx context.Context, request RequestID, events ...Event) (Appended, error) {
	if err := request.validate(); err != nil {
		return Appended{}, err
	}
	return s.append(ctx, events, nil, request)
}

// AppendIfAs is AppendIf as the request of that name: see AppendAs. Events of the first
// attempt are no conflict for its repetition. A repetition must have
// the condition of the first.
func (s *Store) AppendIfAs(ctx context.Context, request RequestID, events []Event, condition Condition) (Appended, error) {
	if err := request.validate(); err != nil {
		return Appended{}, err
	}
	if err := condition.validate(); err != nil {
		return Appended{}, err
	}
	return s.append(ctx, events, &condition, request)
}

// recallRequest looks whether a refused request had been stored by an earlier
// attempt. Whatever refused it is committed, and its own first attempt cannot
// commit after that: what is not found now is not stored.
func (s *Store) recallRequest(ctx context.Context, request RequestID, got answer) (answer, error) {
	for failed := 0; ; failed++ {
		found, err := s.findRequests(ctx, s.sendBatch, []RequestID{request})
		switch {
		case err == nil && found[0].known():
			return found[0], nil
		case err == nil:
			return got, nil
		case ctx.Err() != nil || !pg.Retryable(err):
			return answer{}, s.explain("look for a request in", err)
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return answer{}, err
		}
	}
}

// known reports whether it is an answer.
func (a answer) known() bool { return a.first > 0 || a.err != nil }

// findRequests returns what each request was answered, if it is recorded, or
// ErrSequenceTooOld. The standbys have what it finds.
func (s *Store) findRequests(ctx context.Context, send batchSender, requests []RequestID) (found []answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	ids, sequences := make([]string, len(requests)), make([]int64, len(requests))
	for i, p := range requests {
		ids[i], sequences[i] = p.Client, p.Sequence
	}
	err = inReadCommitted(ctx, send, s.cfg.LockTimeout, func(b *pgx.Batch) {
		b.Queue(findRequestsSQL, s.lock(), ids, sequences).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, scanRequest)
			return err
		})
		b.Queue(waitIfUnwrittenSQL)
	})
	if err == nil && len(found) != len(requests) {
		err = fmt.Errorf("%d answers for %d requests", len(found), len(requests))
	}
	return found, err
}

func scanRequest(row pgx.CollectableRow) (a answer, err error) {
	var first *int64
	var tooOld bool
	if err := row.Scan(&first, &tooOld); err != nil {
		return a, err
	}
	if first != nil {
		a.first, a.repeated = *first, true
	} else if tooOld {
		a.err = ErrSequenceTooOld
	}
	return a, nil
}

// codeRecorded is what a store's append raises for requests that are recorded,
// or too old.
const codeRecorded = "TW005"

// isRecorded reports whether a batch was refused because of a request of it.
func (s *Store) isRecorded(err error) bool {
	return pg.Code(err) == codeRecorded || pg.Code(err) == pg.CodeUniqueViolation &&
		strings.HasPrefix(pg.Constraint(err), fmt.Sprintf("request_%d_", s.lock()))
}

// withoutRecorded answers the calls whose requests are recorded, or too old, and
// returns the batch without them. If there are none it returns err.
func (w *writer) withoutRecorded(ctx context.Context, b batch, err error) (batch, error) {
	var requests []RequestID
	for _, c := range b.calls {
		if c.request.Client != "" {
			requests = append(requests, c.request)
		}
	}
	var found []answer
	if lookErr := w.look(ctx, func() (err error) {
		found, err = w.store.findRequests(ctx, w.sendBatch, requests)
		return err
	}); lookErr != nil {
		return b, lookErr
	}
	kept := make([]*call, 0, len(b.calls))
	for _, c := range b.calls {
		if c.request.Client == "" {
			kept = append(kept, c)
			continue
		}
		if found[0].known() {
			c.answer(found[0])
		} else {
			kept = append(kept, c)
		}
		found = found[1:]
	}
	if len(kept) < len(b.calls) {
		err = nil
	}
	b.calls = kept
	return b, err
}

// rotateRequests gives up records of requests that are old enough, if there are
// clients. If another process is at it, or in the way, it is done later. The first
// step reads a whole table: it may take its time, and delays nobody.
func (s *Store) rotateRequests(ctx context.Context) error {
	folding, folded := context.WithTimeout(ctx, KeepRequests)
	defer folded()
	var due bool
	err := inTx(folding, s.pool, KeepRequests, func(tx pgx.Tx) error {
		return tx.QueryRow(folding, foldRequestsSQL, s.lock(), KeepRequests).Scan(&due)
	})
	if err != nil || !due {
		return err
	}
	if err := s.vacuumRequests(folding); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return inTx(ctx, s.pool, s.cfg.LockTimeout, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, swapRequestsSQL, s.lock(), KeepRequests)
		return err
	})
}

// vacuumRequests gives back what the table held that was folded, as far as no
// snapshot sees it: it is not taken into use again before.
func (s *Store) vacuumRequests(ctx context.Context) error {
	var old *string
	if err := s.pool.QueryRow(ctx, oldRequestsSQL, s.lock()).Scan(&old); err != nil || old == nil {
		return err
	}
	_, err := s.pool.Exec(ctx, fmt.Sprintf(vacuumFmt, *old))
	return err
}
