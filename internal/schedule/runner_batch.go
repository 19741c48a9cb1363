package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/stream"
)

const (
	// findSQL reads the schedules that are due, and the next one that will be. It does not fetch payloads.
	findSQL = `
SELECT s.name, coalesce(s.queue, ''), coalesce(s.stream, ''), octet_length(s.payload), extract(epoch FROM s.look_at - clock_timestamp())::float8
FROM tidewire.schedules AS s WHERE s.look_at <= clock_timestamp() + $1::interval ORDER BY s.look_at, s.name LIMIT $2`

	// takeSQL locks the found schedules that are still due and that no other Runner has locked.
	takeSQL = `
SELECT name, coalesce(cron, ''), time_zone, coalesce(at, '-infinity') <> '-infinity', coalesce(queue, ''), coalesce(stream, ''), coalesce(key, ''), headers, payload,
	priority, catch_up, since, due_at, failures, clock_timestamp()
FROM tidewire.schedules WHERE name = ANY ($1) AND look_at <= clock_timestamp() ORDER BY look_at, name FOR UPDATE SKIP LOCKED`

	// frozenSQL has PostgreSQL end a transaction whose Runner is frozen, so that others can take its schedules.
	frozenSQL = `SELECT set_config('idle_in_transaction_session_timeout', '30s', true)`

	advanceSQL = `
UPDATE tidewire.schedules AS s SET due_at = t.due, look_at = t.due, last_due_at = coalesce(t.last, s.last_due_at), last_error = NULL, failures = 0
FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS t (name, due, last) WHERE s.name = t.name`
	failSQL = `
UPDATE tidewire.schedules AS s SET due_at = coalesce(t.due, s.due_at), look_at = clock_timestamp() + t.pause, last_error = t.error, failures = s.failures + 1
FROM unnest($1::text[], $2::timestamptz[], $3::interval[], $4::text[]) AS t (name, due, pause, error) WHERE s.name = t.name`
	removeSQL = `DELETE FROM tidewire.schedules WHERE name = ANY ($1)`
)

// due is a schedule that was due when it was found.
type due struct {
	name string
	to   target
}

type found struct {
	due  []due
	next time.Duration // until the next schedule is due, or a long time
}

// find reads what is due, up to the bounds of a batch.
func (r *Runner) find(ctx context.Context) (found, error) {
	f := found{next: math.MaxInt64}
	rows, err := r.pool.Query(ctx, findSQL, 2*r.cfg.Poll, maxBatch)
	if err != nil {
		return f, err
	}
	var d due
	var size, total int
	var wait float64 // seconds
	_, err = pgx.ForEachRow(rows, []any{&d.name, &d.to.queue, &d.to.stream, &size, &wait}, func() error {
		total += size
		switch {
		case wait > 0:
			f.next = min(f.next, time.Duration(wait*float64(time.Second))+time.Millisecond)
		case total <= maxBatchBytes || len(f.due) == 0:
			f.due = append(f.due, d)
		}
		return nil
	})
	return f, err
}

// row is a locked schedule.
type row struct {
	Spec
	once     bool
	since    time.Time
	due      *time.Time // nil: not computed yet
	failures int
	now      time.Time // of PostgreSQL

	emit time.Time // the due time that gets a message now; zero: none does
	next time.Time // the due time after that; zero: none
	err  error
}

// write moves the schedules to their next due times and writes their messages, in one transaction. It returns how many schedules it has changed.
func (r *Runner) write(ctx context.Context, all []due, targets map[target]sender) (int, error) {
	var rows []*row
	err := pgx.BeginTxFunc(ctx, r.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		for _, sql := range []string{pg.WriterSettings(lockTimeout), frozenSQL} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if rows, err = take(ctx, tx, all); err != nil {
			return err
		}
		r.between("taken")
		for _, w := range rows {
			w.plan()
		}
		if err := send(ctx, tx, rows, targets); err != nil {
			return err
		}
		err = record(ctx, tx, rows)
		r.between("recorded")
		return err
	})
	if err != nil {
		return 0, err
	}
	used := make(map[target]bool)
	for _, w := range rows {
		if w.err == nil && !w.emit.IsZero() {
			r.sent.Add(1)
			used[targetOf(w)] = true
		}
	}
	for to := range used {
		for _, s := range targets[to].streams() {
			r.cfg.Committed(s)
		}
	}
	return len(rows), nil
}

func take(ctx context.Context, tx pgx.Tx, all []due) ([]*row, error) {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	found, err := tx.Query(ctx, takeSQL, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(in pgx.CollectableRow) (*row, error) {
		w := new(row)
		var headers *string
		err := in.Scan(&w.Name, &w.Cron, &w.TimeZone, &w.once, &w.Queue, &w.Stream, &w.Key, &headers, &w.Payload,
			&w.Priority, &w.CatchUp, &w.since, &w.due, &w.failures, &w.now)
		if headers != nil {
			w.Headers = json.RawMessage(*headers)
		}
		return w, err
	})
}

const (
	// tolerance is how late a due time may be that is not missed yet.
	tolerance = time.Minute
	// allWithin bounds the missed due times of All.
	allWithin = 24 * time.Hour
)

// plan decides which due time gets a message, and which is the next one.
func (w *row) plan() {
	if w.once {
		if w.emit = *w.due; w.CatchUp == None && w.now.Sub(w.emit) > tolerance {
			w.emit = time.Time{}
		}
		return
	}
	times, err := ParseTimes(w.Cron, w.TimeZone)
	if err != nil {
		w.err = err
		return
	}
	if w.due == nil {
		if first := times.Next(w.since); !first.IsZero() {
			w.due = &first
		}
	}
	switch {
	case w.due == nil:
		w.err = &InvalidError{"cron", "has no due time in the next five years"}
		return
	case w.due.After(w.now):
		w.next = *w.due
		return
	case w.CatchUp != All:
		w.emit = times.Latest(*w.due, w.now)
	case w.now.Sub(*w.due) > allWithin:
		// The first one within the 24 hours, or the latest if that is older.
		w.emit = times.Next(times.Latest(*w.due, w.now.Add(-allWithin)))
		if w.emit.After(w.now) || w.emit.IsZero() {
			w.emit = times.Latest(*w.due, w.now)
		}
	default:
		w.emit = *w.due
	}
	w.next = times.Next(w.emit)
	if w.CatchUp == None && w.now.Sub(w.emit) > tolerance {
		w.emit = time.Time{}
	}
	if w.next.IsZero() {
		w.err = &InvalidError{"cron", "has no due time in the next five years"}
	}
}

// message returns the message of the due time.
func (w *row) message() (stream.Message, error) {
	headers := make(map[string]json.RawMessage)
	if len(w.Headers) > 0 {
		if err := json.Unmarshal(w.Headers, &headers); err != nil {
			return stream.Message{}, err
		}
	}
	for name, value := range map[string]string{NameHeader: w.Name, DueHeader: w.emit.UTC().Format(time.RFC3339Nano)} {
		text, err := json.Marshal(value)
		if err != nil {
			return stream.Message{}, err
		}
		headers[name] = text
	}
	text, err := json.Marshal(headers)
	return stream.Message{Key: w.Key, Headers: text, Payload: w.Payload}, err
}

// pause is how long a schedule waits after a failure.
func (w *row) pause() time.Duration { return min(10*time.Second<<min(w.failures, 10), 10*time.Minute) }

// record writes the results of the batch.
func record(ctx context.Context, tx pgx.Tx, rows []*row) error {
	var removed, advanced, failed, problems []string
	var dues, lasts, failedDues []*time.Time
	var pauses []time.Duration
	for _, w := range rows {
		switch {
		case w.err != nil:
			failed, problems = append(failed, w.Name), append(problems, truncate(w.err.Error()))
			failedDues, pauses = append(failedDues, w.due), append(pauses, w.pause())
		case w.once:
			removed = append(removed, w.Name)
		default:
			var last *time.Time
			if !w.emit.IsZero() {
				last = &w.emit
			}
			advanced, dues, lasts = append(advanced, w.Name), append(dues, &w.next), append(lasts, last)
		}
	}
	for _, step := range []struct {
		sql   string
		names []string
		args  []any
	}{
		{removeSQL, removed, []any{removed}},
		{advanceSQL, advanced, []any{advanced, dues, lasts}},
		{failSQL, failed, []any{failed, failedDues, pauses, problems}},
	} {
		if len(step.names) == 0 {
			continue
		}
		done, err := tx.Exec(ctx, step.sql, step.args...)
		if err != nil {
			return err
		}
		if done.RowsAffected() != int64(len(step.names)) { // the rows are locked
			return fmt.Errorf("%d of %d schedules were recorded", done.RowsAffected(), len(step.names))
		}
	}
	return nil
}

// maxError bounds last_error, in bytes.
const maxError = 1000

func truncate(text string) string {
	if len(text) <= maxError {
		return text
	}
	end := maxError
	for text[end]&0xc0 == 0x80 { // inside of a character
		end--
	}
	return text[:end]
}
