package gateway

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

const (
	// drainLook is how often a drain looks which connections are due, and drainTold how often it logs how many are left.
	drainLook = 10 * time.Millisecond
	drainTold = 5 * time.Second
	// leastReturn is the shortest time over which the clients of a stopping server are told to come back, and returnEach what
	// each open connection adds to it: 1,000 handshakes a second keep a core busy for about a tenth of the time.
	leastReturn = time.Second
	returnEach  = time.Millisecond
)

// Drain closes the open WebSockets, in random order and evenly spread over a time, so that their clients do not all connect to another
// server at once. Everything received is stored and answered before. Meanwhile new WebSockets are refused, /readyz answers 503, and
// HTTP requests are served. It returns when no connection is left, when the time is over, or when ctx ends. Call Shutdown after it.
func (s *Server) Drain(ctx context.Context, over time.Duration) {
	conns := s.conns.drain()
	s.cfg.Log.Info("draining: connections are closed one after another", "connections", len(conns), "over", over)
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	began, told := time.Now(), time.Now()
	for i := 0; ; {
		due := time.Since(began)
		for ; i < len(conns) && over*time.Duration(i)/time.Duration(len(conns)) <= due; i++ {
			conns[i].stop()
		}
		if s.conns.count() == 0 || due >= over {
			return
		}
		if time.Since(told) >= drainTold {
			told = time.Now()
			s.cfg.Log.Info("draining", "connections", s.conns.count())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// drain lets no new connection in, and returns the open ones in random order.
func (c *connections) drain() []*connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beginStop()
	all := make([]*connection, 0, len(c.all))
	for conn := range c.all {
		all = append(all, conn)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// beginStop notes how many clients will come back. c.mu is held.
func (c *connections) beginStop() {
	if !c.draining {
		c.draining = true
		c.returning = max(leastReturn, time.Duration(len(c.all))*returnEach)
	}
}

// comeBack is after how long a client should connect again: a random time, so that not all clients do so at once.
func (c *connections) comeBack() time.Duration {
	c.mu.Lock()
	over := c.returning
	c.mu.Unlock()
	return rand.N(max(over, leastReturn))
}

// stopping reports whether no new connections are let in.
func (c *connections) stopping() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// errStopping is why a server that drains is not ready.
var errStopping = &engine.NotReadyError{Reason: "the server is shutting down"}

// refuseStopping answers a WebSocket handshake that comes while the server stops.
func (s *Server) refuseStopping(w http.ResponseWriter) {
	after := s.conns.comeBack()
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
	with := refusal(codeStopping)
	with.RetryAfterMS = max(1, after.Milliseconds())
	writeError(w, with)
}

// goingAway is the reason in the Close frame of a server that stops. Clients read the number.
func (c *connection) goingAway() string {
	return fmt.Sprintf("the server is shutting down; retry_after_ms=%d", c.owner.comeBack().Milliseconds())
}

// ended is the code and the reason of the Close frame after Read has ended with err.
func ended(c *connection, err error) (websocket.StatusCode, string) {
	status := closeCode(c, err)
	if f := c.final.Load(); f != nil && status == f.code {
		return status, f.reason
	}
	if status == websocket.StatusGoingAway && c.stopping() {
		return status, c.goingAway()
	}
	return status, ""
}
