package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// patience is the time within which a well-behaved client gets its answer, even on a busy machine.
	patience = time.Minute
	// pause is how long a well-behaved client rests after answers, and regularPause one whose latencies are shown. They must leave the server
	// some of its time: one that has no time left is slow without any attack.
	pause, regularPause = 50 * time.Millisecond, 200 * time.Millisecond
	// window is how many requests a well-behaved client has in flight.
	window = 4
)

// world is what all clients of one run share.
type world struct {
	t     *testing.T
	gate  *gate // nil in open mode
	users atomic.Int64
	times latencies
	sent  int // messages of well-behaved clients that were answered, counted in the end

	producing context.Context // when it ends, nobody starts a request
	drained   chan struct{}   // closed when all started requests are answered
	deadline  time.Time       // until which clients then wait for what they miss
	giveUp    context.Context // when it ends, nobody waits any more

	mu     sync.Mutex
	now    *generation
	lines  int // connections of well-behaved clients
	faults map[string]*fault
	order  []string
}

func newWorld(t *testing.T, producing, giveUp context.Context, g *gate) *world {
	return &world{t: t, producing: producing, giveUp: giveUp, gate: g, drained: make(chan struct{}), faults: make(map[string]*fault)}
}

// generation is the time between a start and a stop of the server.
type generation struct {
	addr  string
	stop  chan struct{}   // closed before the server is asked to stop
	next  chan struct{}   // closed when the next server runs
	heard map[string]bool // well-behaved clients that this server has answered
	all   chan struct{}   // closed when it has answered all of them
}

func (g *generation) stopping() bool {
	select {
	case <-g.stop:
		return true
	default:
		return false
	}
}

// begin lets clients use a server that has started.
func (w *world) begin(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now != nil {
		defer close(w.now.next)
	}
	w.now = &generation{addr: addr, stop: make(chan struct{}), next: make(chan struct{}), heard: make(map[string]bool), all: make(chan struct{})}
}

func (w *world) current() *generation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// serving waits for a running server that is not about to stop; nil at the end.
func (w *world) serving() *generation {
	for {
		g := w.current()
		if w.giveUp.Err() != nil {
			return nil
		}
		if !g.stopping() {
			return g
		}
		select {
		case <-g.next:
		case <-w.giveUp.Done():
		}
	}
}

// answered notes that the server has answered a well-behaved client.
func (w *world) answered(g *generation, who string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.heard[who] {
		return
	}
	if g.heard[who] = true; len(g.heard) == w.lines {
		close(g.all)
	}
}

// progress waits until the server has answered each well-behaved client.
func (w *world) progress() {
	select {
	case <-w.current().all:
	case <-time.After(patience):
		w.fault("server", "no progress", "it has not answered all clients within %v", patience)
	}
}

// over reports whether nothing more is expected: all started requests are answered, and what they bring has come, or has not come for long. Then check
// reports what is missing.
func (w *world) over(complete func() bool) bool {
	select {
	case <-w.drained:
		return complete() || time.Now().After(w.deadline)
	default:
		return false
	}
}

type fault struct {
	first string
	times int
}

// fault records a fault. Faults of one kind are reported once, with their number.
func (w *world) fault(who, kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := who + ": " + kind
	if w.faults[key] == nil {
		w.faults[key] = &fault{first: fmt.Sprintf(format, args...)}
		w.order = append(w.order, key)
	}
	w.faults[key].times++
}

// report fails the test for each kind of fault.
func (w *world) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range w.order {
		w.t.Errorf("%s (%d times), first: %s", key, w.faults[key].times, w.faults[key].first)
	}
}

// message is any message of the server.
type message struct {
	Type, Code, Message, Text, Payload, Delivery, Room string

	ID                      int
	Position, Count, Missed int64
	Positions               []int64
	Lost                    []string
	Duplicate               bool
	Event                   struct {
		Position int64
		Tags     []string
	}
}

// stored is a message at its position.
type stored struct {
	position int64
	payload  string
}

// same checks that a client has seen exactly what PostgreSQL stores.
func (w *world) same(who string, got, want []stored) {
	for i := range max(len(got), len(want)) {
		if i >= len(want) {
			w.fault(who, "not what is stored", "%v, which nobody has stored", got[i])
			return
		}
		if i >= len(got) || got[i] != want[i] {
			w.fault(who, "not what is stored", "%v in place of %v, the %d. of %d", got[i:min(i+1, len(got))], want[i], i+1, len(want))
			return
		}
	}
}

// promised checks that what was answered with a position is stored there, and nothing twice.
func (w *world) promised(who string, answered map[string]int64, all []stored) {
	at := make(map[string]int64)
	for _, m := range all {
		if _, own := answered[m.payload]; own && at[m.payload] != 0 {
			w.fault(who, "stored twice", "%q at %d and %d", m.payload, at[m.payload], m.position)
		}
		at[m.payload] = m.position
	}
	for payload, position := range answered {
		if at[payload] != position {
			w.fault(who, "lost", "%q was answered with position %d and is at %d", payload, position, at[payload])
		}
	}
	w.sent += len(answered)
}

// request requests JSON as a well-behaved client, and reports whether it got it. An answer other than 200 is a fault.
func (w *world) request(who, method, path, body string, answer any) bool {
	g := w.serving()
	if g == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(w.giveUp, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, strings.NewReader(body))
	if err != nil {
		w.fault(who, "request", "%v", err)
		return false
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.gate != nil {
		r.Header.Set("Authorization", bearer(w.gate.token(who, shortLife)))
	}
	text, status, err := do(goodClient, r)
	switch {
	case g.stopping() || w.giveUp.Err() != nil:
		return false
	case err != nil:
		w.fault(who, "no answer", "%s %s: %v", method, path, err)
		return false
	case status == http.StatusConflict && strings.Contains(string(text), "lease_lost"):
		return false // it was too slow: another consumer gets the job
	case status != http.StatusOK:
		w.fault(who, fmt.Sprint("status ", status), "%s %s: %.300s", method, path, text)
		return false
	}
	if err := json.Unmarshal(text, answer); err != nil {
		w.fault(who, "not understood", "%s %s: %.300q", method, path, text)
		return false
	}
	return true
}

// goodClient is that of well-behaved clients, which keep their connections.
var goodClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

func do(client *http.Client, r *http.Request) (text []byte, status int, err error) {
	answer, err := client.Do(r)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return text, answer.StatusCode, err
}
