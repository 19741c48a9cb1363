package pg

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// NotYet reports whether an attempt to connect may succeed later with the same settings: PostgreSQL starts, stops or does not
// listen, has no free connection, its host name is not known, or the primary is away. Each host that was tried counts: one
// that refuses the login or the database makes it false. So do wrong TLS settings, unless another host may answer later.
func NotYet(err error) bool {
	later, wrong := false, false
	walk(err, func(err error) {
		switch judge(err) {
		case comesLater:
			later = true
		case isWrong:
			wrong = true
		}
	})
	return later && !wrong
}

type judgement int

const (
	saysNothing judgement = iota
	comesLater
	isWrong
)

func judge(err error) judgement {
	switch err {
	case io.EOF, io.ErrUnexpectedEOF, context.DeadlineExceeded, ErrFormerPrimary, errNotWanted:
		return comesLater
	case fs.ErrPermission:
		return isWrong
	}
	if answer, ok := err.(*pgconn.PgError); ok {
		for _, class := range []string{"08", "53", "57P"} {
			if strings.HasPrefix(answer.Code, class) {
				return comesLater
			}
		}
		return isWrong
	}
	if op, ok := err.(*net.OpError); ok && (op.Op == "remote error" || errors.Is(op, fs.ErrPermission)) { // an alert of TLS; a socket that is not for this user
		return isWrong
	}
	if _, ok := err.(net.Error); ok {
		return comesLater
	}
	return saysNothing
}

// walk calls visit for err and all errors that it wraps.
func walk(err error, visit func(error)) {
	if err == nil {
		return
	}
	visit(err)
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		walk(err.Unwrap(), visit)
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			walk(one, visit)
		}
	}
}
