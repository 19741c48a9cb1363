package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/websocket"
)

// A panic in the handler of one connection or request ends only that connection or
// request. A panic of a committer or flusher, which works for all clients, is not
// caught: its state may be wrong for all of them, so the process ends.

// panics counts and logs caught panics.
type panics struct {
	total atomic.Uint64
	log   rareLog
}

func newPanics(metrics prometheus.Registerer, log *slog.Logger) *panics {
	p := &panics{log: rareLog{log: log}}
	metrics.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: "tidewire_panics_total", Help: "Panics that ended one connection or request."},
		func() float64 { return float64(p.total.Load()) }))
	return p
}

// panicError is a caught panic.
type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("gateway: panic: %v", e.value) }

// try calls f and returns its error, or its panic as one.
func (p *panics) try(serving string, f func() error) (err error) {
	defer func() {
		value := recover()
		if value == nil {
			return
		}
		if value == http.ErrAbortHandler { // net/http's way to abort a connection
			panic(value)
		}
		p.total.Add(1)
		p.log.fail("panic: the connection or request was ended", "serving", serving, "panic", value, "stack", string(debug.Stack()))
		err = &panicError{value}
	}()
	return f()
}

// try calls f. If f panics, the connection ends with 1011.
func (c *connection) try(f func() error) error {
	err := c.owner.panics.try(c.peer(), f)
	if _, ok := err.(*panicError); ok {
		c.broken.Store(true)
		c.StartClose(websocket.StatusInternalError, "internal error")
		c.SetReadDeadline(time.Now())
	}
	return err
}

// guard is try for a function without an error.
func (c *connection) guard(f func()) {
	c.try(func() error { f(); return nil })
}

func (c *connection) peer() string { return "connection of " + c.address.String() }

// serveHTTP answers 500 after a panic, or aborts the connection if the answer
// has begun.
func (p *panics) serveHTTP(w http.ResponseWriter, r *http.Request, next http.Handler) {
	answer := &answerWriter{ResponseWriter: w}
	err := p.try(r.Method+" "+r.URL.Path+" "+requestID(r), func() error {
		next.ServeHTTP(answer, r)
		return nil
	})
	switch {
	case err == nil:
	case answer.begun:
		panic(http.ErrAbortHandler)
	default:
		writeError(w, refusal(codeInternal))
	}
}

// answerWriter records whether an answer has begun.
type answerWriter struct {
	http.ResponseWriter
	begun bool
}

func (a *answerWriter) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

func (a *answerWriter) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
