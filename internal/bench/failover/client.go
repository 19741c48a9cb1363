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

// pulses know when each kind was first answered after a promotion, and how many answers there were. Safe for concurrent use.
type pulses struct {
	mu    sync.Mutex // guards the fields below
	since time.Time
	first map[string]time.Time
	all   chan struct{} // closed when each kind was answered

	answers, deliveries int64
	latency             *bench.Histogram // of requests since the last counters
}

// arm waits for the first answers after a moment.
func (p *pulses) arm(since time.Time) (all <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.first, p.all = since, make(map[string]time.Time), make(chan struct{})
	return p.all
}

// answered records the answer to a request of a kind.
func (p *pulses) answered(kind string) {
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

// waited notes how long a request took that was answered.
func (p *pulses) waited(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency.Record(d)
}

// counters are what somebody who watches is shown. Errors are requests that failed, and were tried again.
func (p *pulses) counters(errors int64) bench.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := bench.Counters{Phase: bench.PhaseMeasured, Messages: p.answers, Deliveries: p.deliveries, Errors: errors, Latency: p.latency}
	p.latency = bench.NewHistogram()
	return c
}

// took is how long after a moment each kind was answered, and missing the kinds that were not.
func (p *pulses) took(since time.Time) (longest time.Duration, missing []string) {
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

// load is what all clients share.
type load struct {
	nodes  []string // addresses, HOST:PORT
	ledger *Ledger
	pulses *pulses
	pace   time.Duration // from one request of a client to the next, on average
	ending chan struct{} // closed: no more requests that write
}

// rest waits until the next request is due, or the next one of so many. It reports whether there is one.
func (l *load) rest(ctx context.Context, requests int) bool {
	select {
	case <-time.After(time.Duration(rand.Int64N(2*int64(requests)*int64(l.pace) + 1))):
		return true
	case <-l.ending:
	case <-ctx.Done():
	}
	return false
}

// client is one of /ws, which connects again as often as it must. Not safe for concurrent use.
type client struct {
	*load
	number int // of all clients
	wire   *bench.Wire
}

func (c *client) node() string { return c.nodes[c.number%len(c.nodes)] }

// dial connects, unless it is connected.
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

// ask sends a request and waits for its answer. An error of the server is one, and counted; after another error the
// client connects anew.
func (c *client) ask(ctx context.Context, format string, args ...any) (bench.WireMessage, error) {
	wire, err := c.dial(ctx)
	if err != nil {
		return bench.WireMessage{}, err
	}
	began := time.Now()
	m, err := wire.Ask(fmt.Appendf(nil, format, args...))
	switch {
	case err == nil:
		c.pulses.waited(time.Since(began))
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

// call makes a request by HTTP, and decodes the answer. The error is an answerError if the server says one.
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
