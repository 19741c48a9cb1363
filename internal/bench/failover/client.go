package failover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// The kinds of requests. Each must go on after a promotion.
const (
	kindPublish = "publish"
	kindDeliver = "deliver" // to a subscription
	kindCommit  = "commit"
	kindEnqueue = "enqueue"
	kindSettle  = "settle" // a delivery of a queue, acknowledged
	kindAppend  = "append"
	kindIngest  = "ingest"
)

var kinds = []string{kindPublish, kindDeliver, kindCommit, kindEnqueue, kindSettle, kindAppend, kindIngest}

// answerTimes records when each kind of request was first answered after a promotion, and the number of answers. Safe for
// concurrent use.
type answerTimes struct {
	mu    sync.Mutex // guards the fields below
	since time.Time
	first map[string]time.Time
	all   chan struct{} // closed when each kind was answered

	answers, deliveries int64
	latency             *bench.Histogram // of requests since the last counters
}

// arm starts to wait for the first answer of each kind since a time.
func (p *answerTimes) arm(since time.Time) (all <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.first, p.all = since, make(map[string]time.Time), make(chan struct{})
	return p.all
}

// answered records the answer to a request of a kind.
func (p *answerTimes) answered(kind string) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind == kindDeliver {
		p.deliveries++
	} else {
		p.answers++
	}
	if p.first == nil || !p.first[kind].IsZero() || now.Before(p.since) {
		return
	}
	p.first[kind] = now
	if len(p.first) == len(kinds) {
		close(p.all)
	}
}

// waited records the latency of an answered request.
func (p *answerTimes) waited(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency.Record(d)
}

// counters returns the progress for viewers. Errors are requests that failed and were tried again.
func (p *answerTimes) counters(errors int64) bench.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := bench.Counters{Phase: bench.PhaseMeasured, Messages: p.answers, Deliveries: p.deliveries, Errors: errors, Latency: p.latency}
	p.latency = bench.NewHistogram()
	return c
}

// took returns the time from since until every kind was answered, and the kinds that were not
// answered.
func (p *answerTimes) took(since time.Time) (longest time.Duration, missing []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range kinds {
		if first := p.first[kind]; first.IsZero() {
			missing = append(missing, kind)
		} else {
			longest = max(longest, first.Sub(since))
		}
	}
	return longest, missing
}

// load is shared by all clients.
type load struct {
	nodes       []string // addresses, HOST:PORT
	ledger      *Ledger
	answerTimes *answerTimes
	pace        time.Duration // average time between two requests of a client
	ending      chan struct{} // closed: no more requests that write
}

// rest waits for the time of the given number of requests on average, with a random factor. It reports
// false if the load ends before.
func (l *load) rest(ctx context.Context, requests int) bool {
	select {
	case <-time.After(time.Duration(rand.Int64N(2*int64(requests)*int64(l.pace) + 1))):
		return true
	case <-l.ending:
	case <-ctx.Done():
	}
	return false
}

// client is a client of /ws that reconnects as often as necessary. Not safe for concurrent use.
type client struct {
	*load
	number int // of all clients
	wire   *bench.Wire
}

func (c *client) node() string { return c.nodes[c.number%len(c.nodes)] }

// dial connects, unless the client is connected.
func (c *client) dial(ctx context.Context) (*bench.Wire, error) {
	for c.wire == nil {
		wire, err := bench.DialWire(ctx, "ws://"+c.node()+"/ws")
		if err == nil {
			c.wire = wire
			break
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return c.wire, nil
}

// ask sends a request and waits for its answer. An error answer of the server is returned as an error, and counted.
// After any other error the client reconnects.
func (c *client) ask(ctx context.Context, format string, args ...any) (bench.WireMessage, error) {
	wire, err := c.dial(ctx)
	if err != nil {
		return bench.WireMessage{}, err
	}
	began := time.Now()
	m, err := wire.Ask(fmt.Appendf(nil, format, args...))
	switch {
	case err == nil:
		c.answerTimes.waited(time.Since(began))
		return m, nil
	case m.Code == "":
		c.close()
	}
	c.ledger.Count(countErrors)
	return m, err
}

func (c *client) close() {
	if c.wire != nil {
		c.wire.Close()
		c.wire = nil
	}
}

// call makes an HTTP request and decodes the answer. An error answer of the server is an answerError.
func call(ctx context.Context, method, node, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+node+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 300 {
		return json.NewDecoder(response.Body).Decode(into)
	}
	var answer struct{ Error *answerError }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error == nil {
		return errors.Join(err, fmt.Errorf("%s %s: %s", method, path, response.Status))
	}
	return answer.Error
}

// answerError is an error of /v1.
type answerError struct {
	Code, Message string
	Last          int64
}

func (e *answerError) Error() string { return e.Code + ": " + e.Message }
