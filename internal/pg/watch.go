package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// watchEvery is how often the servers are asked, also those without connections: one of them may have been
	// promoted during an outage of the others that was too short to be noticed.
	watchEvery = time.Second / 2
	// doubtAfter is when a server that has not answered on the open connection is asked on a new one as well. A server
	// that has answered on neither after silentAfter is silent. So this is noticed within watchEvery plus silentAfter.
	doubtAfter  = 750 * time.Millisecond
	silentAfter = 2 * time.Second
	// watchGrace is how long the watch continues without connections after an attempt to connect, while a server is
	// silent or refused: callers that retry wait up to a second between two attempts (Backoff).
	watchGrace = 2 * time.Second
)

// watch checks the connections as long as there are any, or callers fail to open one.
//
// If there are several servers, it asks each on a separate connection. A server that answers neither there nor on a new
// connection, while another server answers, is silent. Its connections are closed, so that their users retry on another
// server, and new connections to it fail until it answers. A slow statement on a server that answers is not disturbed.
func (h *hosts) watch() {
	h.watching.Lock() // an earlier watch may not have closed its connections yet
	defer h.watching.Unlock()
	defer h.closeOwn()
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	h.askAll(ctx, &asking)
	for h.goesOn() {
		select {
		case <-tick.C:
			h.endDead()
			h.askAll(ctx, &asking)
		case <-h.emptied:
		}
	}
}

// goesOn reports whether the watch has to continue.
func (h *hosts) goesOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = len(h.sockets) > 0 || h.several() && !h.allWell() && time.Since(h.wanted) < watchGrace
	return h.watched
}

// allWell reports whether no server is silent or refused. The caller holds mu.
func (h *hosts) allWell() bool {
	for _, s := range h.servers {
		if s.silent || s.refused != nil {
			return false
		}
	}
	return true
}

// endDead closes the connections to machines that are gone.
func (h *hosts) endDead() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for socket := range h.sockets {
		if dead(socket.Conn) {
			socket.end(fmt.Sprintf("pg: %s acknowledges nothing: connection closed", socket.address))
		}
	}
}

// askAll asks each of several servers, unless a question is still open. A server that does not answer does not delay the
// others.
func (h *hosts) askAll(ctx context.Context, asking *sync.WaitGroup) {
	if !h.several() {
		return
	}
	for _, s := range h.servers {
		if s.asked.CompareAndSwap(false, true) {
			asking.Go(func() {
				defer s.asked.Store(false)
				h.probe(ctx, s)
			})
		}
	}
}

// probe asks one server.
func (h *hosts) probe(ctx context.Context, s *server) {
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, silentAfter)
	who, err := h.askServer(bound, s)
	cancel()
	if ctx.Err() != nil {
		return // the watch ends, and has not waited for the answer
	}
	if time.Since(began) < silentAfter+watchEvery || err == nil { // else this process itself was suspended
		h.note(s, began, err)
	}
	if err == nil {
		h.learn(s, who)
	}
}

// note records whether a server has answered the question that was asked at began.
func (h *hosts) note(s *server, began time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.tried = time.Now()
	if err != nil && Code(err) == "" && timedOut(err) {
		if !s.silent && h.anotherAnswered(s, began) {
			h.silence(s)
		}
		return
	}
	if err == nil || Code(err) != "" {
		s.answered = s.tried
	}
	if s.silent { // also if it refuses connections: then an attempt fails quickly
		s.silent = false
		h.tell(slog.LevelInfo, "PostgreSQL server answers again", s, nil)
	}
}

func timedOut(err error) bool {
	var netErr net.Error
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// silence marks a server as silent, and closes its connections. The caller holds mu.
func (h *hosts) silence(s *server) {
	s.silent = true
	h.tell(slog.LevelWarn, "PostgreSQL server does not answer: its connections are closed, and others tried", s, nil)
	for socket := range h.sockets {
		if h.byAddress(socket.address) == s {
			socket.end(fmt.Sprintf("pg: %s does not answer: connection closed", s))
		}
	}
}

// anotherAnswered reports whether another server has answered after since. Older answers do not count: this process may
// have lost its network, and with it all servers at once. The caller holds mu.
func (h *hosts) anotherAnswered(than *server, since time.Time) bool {
	for _, s := range h.servers {
		if s != than && s.answered.After(since) {
			return true
		}
	}
	return false
}
