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
	// doubtAfter is when a server that has not answered on the open connection is asked on a new one as well. A server
	// that has answered on neither after silentAfter is silent. So it is noticed within watchEvery and silentAfter.
	doubtAfter  = 750 * time.Millisecond
	silentAfter = 2 * time.Second
	// lingerFor is for how long a watch goes on without connections after an attempt to connect, while a server is
	// silent or refused: those that try again wait up to a second in between, and see Backoff.
	lingerFor = 2 * time.Second
)

// watch looks after the connections as long as there are any, or somebody tries in vain to open one.
//
// Of several servers it asks each over a connection of its own. One that answers neither there nor on a new
// connection, while another one answers, is silent: its connections are closed, so that what waits on them is tried
// again elsewhere, and it is not tried before it answers. A slow statement on a server that answers is not touched.
func (h *hosts) watch() {
	h.watching.Lock() // the one before may not have closed its connections yet
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

// goesOn reports whether the watch has something to do still.
func (h *hosts) goesOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watched = len(h.sockets) > 0 || h.several() && !h.allWell() && time.Since(h.wanted) < lingerFor
	return h.watched
}

// allWell reports whether each server is used, as far as it is known. The caller holds mu.
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

// askAll asks each of several servers that is not being asked. One that does not answer does not delay the others.
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
	if time.Since(began) < silentAfter+watchEvery || err == nil { // else this process itself was not running
		h.note(s, began, err)
	}
	if err == nil {
		h.learn(s, who)
	}
}

// note takes note of whether a server has answered what it was asked at a time.
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
	if s.silent { // also where connections are refused: there an attempt costs nothing
		s.silent = false
		h.tell(slog.LevelInfo, "PostgreSQL server answers again", s, nil)
	}
}

func timedOut(err error) bool {
	var netErr net.Error
	return pgconn.Timeout(err) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// silence has a server not be tried, and closes its connections. The caller holds mu.
func (h *hosts) silence(s *server) {
	s.silent = true
	h.tell(slog.LevelWarn, "PostgreSQL server does not answer: its connections are closed, and others tried", s, nil)
	for socket := range h.sockets {
		if h.byAddress(socket.address) == s {
			socket.end(fmt.Sprintf("pg: %s does not answer: connection closed", s))
		}
	}
}

// anotherAnswered reports whether there is somewhere else to go. An answer of before counts for nothing: this process
// may have lost its network, and with it all servers at once. The caller holds mu.
func (h *hosts) anotherAnswered(than *server, since time.Time) bool {
	for _, s := range h.servers {
		if s != than && s.answered.After(since) {
			return true
		}
	}
	return false
}
