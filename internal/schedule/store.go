package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SQLSTATEs of the functions in SQL: their messages begin with the name of the argument.
const (
	codeNoTarget = "TW003"
	codeInvalid  = "TW004"
)

const (
	columns = `name, coalesce(cron, ''), time_zone, at, coalesce(queue, ''), coalesce(stream, ''), coalesce(key, ''), headers, payload,
	priority, catch_up, paused, since, due_at, last_due_at, coalesce(last_error, '')`
	getSQL  = `SELECT ` + columns + ` FROM tidewire.schedules WHERE name = $1`
	listSQL = `SELECT ` + columns + ` FROM tidewire.schedules WHERE name > $1 ORDER BY name LIMIT $2`

	checkSQL = `SELECT tidewire.check_schedule_target(nullif($1, ''), nullif($2, ''), $3, $4, $5, $6)`
	putSQL   = `SELECT tidewire.put_schedule($1, nullif($2, ''), $3, $4, nullif($5, ''), nullif($6, ''), nullif($7, ''), $8, $9, $10, $11, $12)`
	dropSQL  = `SELECT tidewire.unschedule($1)`
	nowSQL   = `SELECT clock_timestamp()`

	pauseSQL = `UPDATE tidewire.schedules SET paused = true, due_at = NULL, look_at = NULL WHERE name = $1`
	// resumeSQL leaves a schedule as it is that is not paused: a due time of it may wait for its message.
	resumeSQL = `
WITH resumed AS (
	UPDATE tidewire.schedules SET paused = false, since = clock_timestamp(), due_at = at, look_at = coalesce(at, clock_timestamp()), last_error = NULL, failures = 0
	WHERE name = $1 AND paused RETURNING pg_notify('tidewire_schedules', '')
)
SELECT EXISTS (SELECT FROM tidewire.schedules WHERE name = $1), (SELECT count(*) FROM resumed)`
)

// Put makes a schedule, or replaces the one of its name, and returns it. If cron expression, zone, time and Paused are the same as before, a due time that has
// no message yet stays due. Errors: *InvalidError, and those of PostgreSQL.
func Put(ctx context.Context, pool *pgxpool.Pool, spec Spec) (Schedule, error) {
	var stored Schedule
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var now time.Time
		if err := tx.QueryRow(ctx, nowSQL).Scan(&now); err != nil {
			return err
		}
		if err := spec.validate(now); err != nil {
			return err
		}
		if spec.Payload == nil {
			spec.Payload = []byte{} // and not NULL
		}
		var headers *string
		if len(spec.Headers) > 0 {
			headers = new(string(spec.Headers))
		}
		var once *time.Time
		if !spec.At.IsZero() {
			once = &spec.At
		}
		if _, err := tx.Exec(ctx, checkSQL, spec.Queue, spec.Stream, spec.Key, headers, spec.Payload, spec.Priority); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, putSQL, spec.Name, spec.Cron, spec.TimeZone, once, spec.Queue, spec.Stream, spec.Key, headers, spec.Payload,
			spec.Priority, string(spec.CatchUp), spec.Paused)
		if err != nil {
			return err
		}
		stored, err = scan(tx.QueryRow(ctx, getSQL, spec.Name))
		return err
	})
	return stored, explain("put", spec.Name, err)
}

// Get returns a schedule.
func Get(ctx context.Context, pool *pgxpool.Pool, name string) (Schedule, error) {
	s, err := scan(pool.QueryRow(ctx, getSQL, name))
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	return s, explain("get", name, err)
}

// List returns the schedules whose names are after a name, in the order of names (byte for byte), at most limit.
func List(ctx context.Context, pool *pgxpool.Pool, after string, limit int) ([]Schedule, error) {
	rows, err := pool.Query(ctx, listSQL, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Schedule, error) { return scan(row) })
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	return all, nil
}

// Drop removes a schedule.
func Drop(ctx context.Context, pool *pgxpool.Pool, name string) error {
	var was bool
	err := pool.QueryRow(ctx, dropSQL, name).Scan(&was)
	if err == nil && !was {
		err = ErrNotFound
	}
	return explain("drop", name, err)
}

// Pause stops a schedule until Resume. When it returns, no server writes a message of the schedule any more. A paused schedule stays as it is.
func Pause(ctx context.Context, pool *pgxpool.Pool, name string) error {
	done, err := pool.Exec(ctx, pauseSQL, name)
	if err == nil && done.RowsAffected() == 0 {
		err = ErrNotFound
	}
	return explain("pause", name, err)
}

// Resume starts a paused schedule again. Its due times during the pause have no messages, but a schedule that happens once and whose time has passed is due at
// once. It does nothing if the schedule is not paused.
func Resume(ctx context.Context, pool *pgxpool.Pool, name string) error {
	var exists bool
	var resumed int
	err := pool.QueryRow(ctx, resumeSQL, name).Scan(&exists, &resumed)
	if err == nil && !exists {
		err = ErrNotFound
	}
	return explain("resume", name, err)
}

// scan reads a schedule, and computes Due if no server has done so.
func scan(row pgx.Row) (Schedule, error) {
	var s Schedule
	var once, due, last *time.Time
	var headers *string
	var since time.Time
	err := row.Scan(&s.Name, &s.Cron, &s.TimeZone, &once, &s.Queue, &s.Stream, &s.Key, &headers, &s.Payload,
		&s.Priority, &s.CatchUp, &s.Paused, &since, &due, &last, &s.Error)
	if err != nil {
		return Schedule{}, err
	}
	if once != nil {
		s.At = once.UTC()
	}
	if headers != nil {
		s.Headers = json.RawMessage(*headers)
	}
	if last != nil {
		s.Last = last.UTC()
	}
	switch {
	case due != nil:
		s.Due = due.UTC()
	case !s.Paused && s.Cron != "":
		times, err := ParseTimes(s.Cron, s.TimeZone)
		if err != nil {
			s.Error = err.Error()
		} else {
			s.Due = times.Next(since).UTC()
		}
	}
	if s.Paused {
		s.Due = time.Time{}
	}
	return s, nil
}

// explain makes errors of arguments from those of the functions in SQL.
func explain(what, name string, err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		field, problem, found := strings.Cut(refused.Message, ": ")
		switch {
		case found && (refused.Code == codeNoTarget || refused.Code == codeInvalid):
			return &InvalidError{field, problem}
		case strings.HasPrefix(refused.Code, "22"): // jsonb does not hold everything that JSON has
			return &InvalidError{"headers", refused.Message}
		}
	}
	if _, ok := errors.AsType[*InvalidError](err); ok || errors.Is(err, ErrNotFound) {
		return err
	}
	return fmt.Errorf("%s schedule %q: %w", what, name, err)
}
