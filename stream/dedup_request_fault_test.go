package stream_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// retries records all answers to clients, including those to repetitions.
type retries struct {
	mu     sync.Mutex
	first  map[stream.RequestID]int64
	stored map[stream.RequestID]bool // by a call with that answer
}

// append appends as the client, two messages that name the request. Now and then it
// stops waiting, like a client that will retry.
func (r *retries) append(t *testing.T, a *stream.Appender, p stream.RequestID, patience time.Duration) (answered bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stored, err := a.AppendAs(ctx, p, messages(fmt.Sprint(p.Client, " ", p.Sequence, " a"), fmt.Sprint(p.Client, " ", p.Sequence, " b"))...)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("%v: %v", p, err)
		}
		return false
	}
	first := stored.First
	if stored.Count() != 2 {
		t.Errorf("%v: %+v, want two messages", p, stored)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.first == nil {
		r.first, r.stored = make(map[stream.RequestID]int64), make(map[stream.RequestID]bool)
	}
	if before := r.first[p]; before != 0 && before != first {
		t.Errorf("%v was answered %d and %d", p, before, first)
	}
	if !stored.Duplicate {
		if r.stored[p] {
			t.Errorf("two callers of %v were told that they stored it", p)
		}
		r.stored[p] = true
	}
	r.first[p] = first
	return true
}

// check wants each request once, at its returned position, and otherwise only the
// messages of other callers.
func (r *retries) check(t *testing.T, all []stream.Message, others int64) {
	t.Helper()
	if want := 2*len(r.first) + int(others); len(all) != want {
		t.Errorf("%d messages stored, want %d", len(all), want)
	}
	stored := make(map[string]int64)
	for _, m := range all {
		if stored[string(m.Payload)] != 0 && string(m.Payload) != "other" {
			t.Errorf("%q is stored twice", m.Payload)
		}
		stored[string(m.Payload)] = m.Position
	}
	for p, first := range r.first {
		name := fmt.Sprint(p.Client, " ", p.Sequence)
		if stored[name+" a"] != first || stored[name+" b"] != first+1 {
			t.Errorf("%s is at %d and %d, its answer said %d", name, stored[name+" a"], stored[name+" b"], first)
		}
	}
}
