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
	// promoted while the others hung too briefly for anybody to notice.
	watchEvery = time.Second / 2
	// askTimeout bounds a question on a connection that is open, reconnectTimeout one on a new connection. A server
	// that answers neither is silent.
	askTimeout       = time.Second
	reconnectTimeout = 1250 * time.Millisecond
	// lingerFor is for how long a watch goes on without connections after the last attempt to connect, while
	// something is wrong with a server.
	lingerFor = 5 * time.Second
)

// watch looks after the connections as long as there are any.
//
// Of several servers it asks each over a connection of its own. One that answers neither there nor on a new
// connection, while another one answers, is silent: its connections are closed, so that what waits on them is tried
// again elsewhere, and it is not tried before it answers. What is slow on a server that answers is not touched.
func (h *hosts) watch() {
	h.watching.Lock() // the one before may not have closed its connections yet
	defer h.watching.Unlock()
	defer h.closeOwn()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for h.goesOn() {
		h.endDead()
		if h.several() && h.askAll() {
			h.askAll()
			h.judge()
		}
		select {
		case <-tick.C:
		case <-h.emptied:
		}
	}
}

// goesOn reports whether the watch has something to do still.
func (h *hosts) goesOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = len(h.sockets) > 0 || !h.allWell() && time.Since(h.used) < lingerFor
	return h.watched
}

// allWell reports whether each server is used, as far as it is known. The caller holds mu.
func (h *hosts) allWell() bool {
	for _, s := range h.servers {
		if s.failed > 0 || s.silent || s.refused != nil {
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

// askAll asks the servers, and reports whether one has not answered that was not silent before.
func (h *hosts) askAll() (suspect bool) {
	var asked sync.WaitGroup
	for _, s := range h.servers {
		asked.Go(func() { h.probe(s) })
	}
	asked.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		suspect = suspect || s.failed > 0 && !s.silent
	}
	return suspect
}

// probe asks one server.
func (h *hosts) probe(s *server) {
	bound := askTimeout
	if s.conn == nil {
		bound = reconnectTimeout
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	who, err := h.askServer(ctx, s)
	cancel()
	h.note(s, err, time.Since(began) > bound+askTimeout/2)
	if err == nil {
		h.learn(s, who)
	}
}

// note takes note of whether a server has answered. If this process itself was not running, it is not known.
func (h *hosts) note(s *server, err error, paused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.tried = time.Now()
	switch {
	case err != nil && Code(err) == "" && timedOut(err):
		if !paused {
			s.failed++
		}
		return
	case err == nil || Code(err) != "":
		s.answered = s.tried
	}
	s.failed = 0 // where a connection is refused, an attempt costs nothing
	if s.silent {
		s.silent = false
		h.tell(slog.LevelInfo, "PostgreSQL server answers again", s, nil)
	}
}

func timedOut(err error) bool {
	var netErr net.Error
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// judge finds which servers are silent, and closes their connections.
func (h *hosts) judge() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.servers {
		if s.silent || s.failed < 2 || !h.anotherAnswers(s) {
			continue
		}
		s.silent = true
		h.tell(slog.LevelWarn, "PostgreSQL server does not answer: its connections are closed, and others tried", s, nil)
		for socket := range h.sockets {
			if h.byAddress(socket.address) == s {
				socket.end(fmt.Sprintf("pg: %s does not answer: connection closed", s))
			}
		}
	}
}

// anotherAnswers reports whether there is somewhere else to go. The caller holds mu.
func (h *hosts) anotherAnswers(than *server) bool {
	for _, s := range h.servers {
		if s != than && time.Since(s.answered) < lingerFor {
			return true
		}
	}
	return false
}
