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

// ErrSequenceTooOld: the record of the request may have been deleted already, so that
// a repetition cannot be recognised. Nothing was stored now. The client has to
// continue with higher sequences.
var ErrSequenceTooOld = errors.New("eventstore: sequence is too old")

// KeepRequests is the minimum time for which a request with a RequestID can be
// repeated. Its record is deleted between one and two times KeepRequests after the
// request, or later if nobody appends to the store. Of a time without PostgreSQL at
// most two minutes count.
const KeepRequests = 10 * time.Minute

// RequestID is an idempotency key: it names one append, so that the append can be
// repeated. Client and Sequence together are unique in a store.
type RequestID struct {
	// Client names the program that appends, 1 to MaxName bytes of valid UTF-8 without NUL. A process that
	// continues the sequences of an earlier process uses the same name; other processes use a unique
	// name, such as a UUID. The store keeps some 100 bytes for each client permanently.
	Client string
	// Sequence is the client's number for the request, at least 0. Sequences
	// should increase; gaps, and requests out of order, are allowed. But once the
	// record of a sequence is deleted, all lower sequences get ErrSequenceTooOld,
	// even if they were never used.
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

// AppendAs is an idempotent Append. Calls with the same RequestID may be repeated any
// number of times, in any process, also at the same time. The events are stored once,
// and each call returns the position of the first. Only Client and Sequence are compared:
// the caller has to repeat the events of the first call, because the positions of the
// others follow from how many there are.
//
// This holds for KeepRequests. A repetition that is or may be older stores nothing,
// and the error is ErrSequenceTooOld. All other errors are as with Append; after any
// of them the request can be repeated. Rejections are not recorded: a repetition of a
// rejected request is checked again.
func (s *Store) AppendAs(ctx context.Context, request RequestID, events ...Event) (Appended, error) {
	if err := request.validate(); err != nil {
		return Appended{}, err
	}
	return s.append(ctx, events, nil, request)
}

// AppendIfAs is an idempotent AppendIf: see AppendAs. The events of the first attempt
// do not conflict with its repetition. The caller has to repeat the condition of the
// first call: another one is not compared with it.
func (s *Store) AppendIfAs(ctx context.Context, request RequestID, events []Event, condition Condition) (Appended, error) {
	if err := request.validate(); err != nil {
		return Appended{}, err
	}
	if err := condition.validate(); err != nil {
		return Appended{}, err
	}
	return s.append(ctx, events, &condition, request)
}

// recallRequest checks whether an earlier attempt had stored a rejected request. One
// look is enough: the events that caused the rejection are committed, and the earlier
// attempt cannot commit after them. A request that is not found now is not stored.
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

// known reports whether a is a result, and not the zero value.
func (a answer) known() bool { return a.first > 0 || a.err != nil }

// findRequests returns for each request its recorded answer, ErrSequenceTooOld, or the
// zero answer. It returns when the standbys have the records that it found.
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

// codeRecorded is the SQLSTATE that a store's append function raises for requests that are
// recorded, or too old.
const codeRecorded = "TW005"

// isRecorded reports whether a batch was rejected because one of its requests is recorded or too old.
func (s *Store) isRecorded(err error) bool {
	return pg.Code(err) == codeRecorded || pg.Code(err) == pg.CodeUniqueViolation &&
		strings.HasPrefix(pg.Constraint(err), fmt.Sprintf("request_%d_", s.lock()))
}

// withoutRecorded answers the calls whose requests are recorded, or too old, and
// returns the batch without them. If there are no such calls it returns err.
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

// rotateRequests deletes the records of requests that are old enough, if there are any
// clients. If another process is doing so, or holds a lock, the deletion happens later.
// The first step reads a whole table: it may take long, but delays nobody.
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

// vacuumRequests frees the space of the folded table, as far as no snapshot can see its
// rows. The table is not used again before it is empty.
func (s *Store) vacuumRequests(ctx context.Context) error {
	var old *string
	if err := s.pool.QueryRow(ctx, oldRequestsSQL, s.lock()).Scan(&old); err != nil || old == nil {
		return err
	}
	_, err := s.pool.Exec(ctx, fmt.Sprintf(vacuumFmt, *old))
	return err
}
