package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATE codes that callers branch on.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
const (
	CodeUniqueViolation  = "23505"
	CodeLockNotAvailable = "55P03"
	CodeUndefinedTable   = "42P01"
	CodeQueryCanceled    = "57014" // also by statement_timeout
)

// Code returns the SQLSTATE of err, or "" where PostgreSQL did not answer.
func Code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Constraint returns the name of the constraint that err broke, or "".
func Constraint(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.ConstraintName
	}
	return ""
}

// Retryable reports whether the same work may succeed later, without a change of
// the work or the schema: PostgreSQL is unavailable, restarting, short of a
// resource, or has chosen this transaction as the victim of a conflict. A lost
// connection counts as retryable; before a retry the caller has to find out whether
// its last transaction was committed.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	code := Code(err)
	if code == "" {
		return connectionLost(err) || errors.Is(err, ErrNotReplicated)
	}
	switch {
	case strings.HasPrefix(code, "08"), // connection exception
		strings.HasPrefix(code, "53"),    // out of memory, disk, connections
		strings.HasPrefix(code, "57P"),   // shutdown, crash, starting up
		strings.HasPrefix(code, "58"),    // I/O error
		strings.HasPrefix(code, "40"),    // serialization failure, deadlock
		code == CodeLockNotAvailable,     // a lock is held for too long
		code == "25006",                  // read-only: a standby not yet promoted
		code == "25P03", code == "25P04", // idle or transaction timeout ended us
		code == CodeQueryCanceled,
		droppedMeanwhile(err):
		return true
	}
	return false
}

// droppedMeanwhile reports whether a statement has used a function or table while another transaction dropped it. PostgreSQL
// reports an internal error then; the same statement gets "does not exist" afterwards.
func droppedMeanwhile(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "XX000" &&
		(strings.HasPrefix(e.Message, "cache lookup failed for ") || strings.HasPrefix(e.Message, "could not open relation with OID "))
}

// Away reports whether err means that PostgreSQL as a whole is unavailable: there is no
// connection, or PostgreSQL refuses or ends connections because it starts or stops.
func Away(err error) bool {
	code := Code(err)
	if code == "" {
		return err != nil && connectionLost(err)
	}
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}

func connectionLost(err error) bool {
	var connect *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connect) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) ||
		strings.Contains(err.Error(), "conn closed") // pgconn has no sentinel for it
}
