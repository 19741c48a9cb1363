package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// maxStarting bounds the connections to one server whose start-up PostgreSQL has not finished.
	maxStarting = 8
	// maxStartingWatch is the same for those of the watch.
	maxStartingWatch = 2
	// lingerCheck is how often a connection that was given up is checked for a machine that is gone.
	lingerCheck = time.Second
)

// admission bounds the connections of this process to one server that are in start-up. An attempt that is given up, because its
// time is over, leaves a backend: PostgreSQL looks at the socket again when the start-up is over. While a lock on the catalogue
// delays all start-ups, each retry would add a backend, until max_connections is reached for everybody. So an attempt counts
// until PostgreSQL has answered it, or has closed the connection.
//
// If all were given up, one more is admitted after a second, the next after two more, then four, and so on: a proxy may have
// forgotten the others.
type admission struct {
	most int

	mu       sync.Mutex
	starting int                   // under way and given up
	givenUp  map[*startup]struct{} // given up, and unanswered
	freed    chan struct{}         // closed when one ends; nil while nobody waits
	pause    time.Duration         // before one more is admitted; 0 unless all are given up
	next     time.Time             // when it is
}

// enter waits until one more connection may start.
func (a *admission) enter(ctx context.Context) error {
	for {
		freed, wait := a.try()
		if freed == nil {
			return nil
		}
		var more <-chan time.Time
		if wait > 0 {
			more = time.After(wait)
		}
		select {
		case <-freed:
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("pg: PostgreSQL does not finish the start-up of %d connections, so no other is opened: %w", a.most, ctx.Err())
		}
	}
}

// try admits a connection, or returns a channel that is closed when one has ended, and when one more may be admitted if all
// were given up.
func (a *admission) try() (freed <-chan struct{}, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.starting >= a.most && !a.oneMore() {
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		return a.freed, time.Until(a.next)
	}
	a.starting++
	return nil, 0
}

// oneMore reports whether a connection is admitted although all are given up. The caller holds mu.
func (a *admission) oneMore() bool {
	now := time.Now()
	switch {
	case len(a.givenUp) < a.starting:
		return false
	case a.pause == 0:
		a.pause = time.Second
	case now.Before(a.next):
		return false
	default:
		a.pause *= 2
		a.next = now.Add(a.pause)
		return true
	}
	a.next = now.Add(a.pause)
	return false
}

// giveUp counts a connection as given up.
func (a *admission) giveUp(s *startup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.givenUp == nil {
		a.givenUp = make(map[*startup]struct{})
	}
	a.givenUp[s] = struct{}{}
	a.wake() // those that wait look whether all are given up
}

// leave is called when a connection is not in start-up any more. If it was started, PostgreSQL starts others too, and those that
// were given up need not be waited for.
func (a *admission) leave(s *startup, started bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.starting--
	delete(a.givenUp, s)
	a.pause, a.next = 0, time.Time{}
	a.wake()
	if started {
		for other := range a.givenUp {
			other.Conn.Close()
		}
	}
}

func (a *admission) wake() {
	if a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

// startup is a connection, which counts for its admission until its start-up is over.
type startup struct {
	net.Conn
	of    *admission
	asked atomic.Bool // PostgreSQL has not answered what was written last
	over  atomic.Bool
}

// dialStartup dials when the admission allows it.
func dialStartup(ctx context.Context, a *admission, dial pgconn.DialFunc, network, address string) (net.Conn, error) {
	if err := a.enter(ctx); err != nil {
		return nil, err
	}
	s := &startup{of: a}
	conn, err := dial(ctx, network, address)
	if err != nil {
		a.leave(s, false)
		return nil, err
	}
	s.Conn = conn
	return s, nil
}

// Read implements net.Conn.
func (s *startup) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if !s.over.Load() && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.asked.Store(false)
	}
	return n, err
}

// Write implements net.Conn.
func (s *startup) Write(p []byte) (int, error) {
	if !s.over.Load() {
		s.asked.Store(true)
	}
	return s.Conn.Write(p)
}

// Close implements net.Conn. In the middle of the start-up the connection stays open until PostgreSQL answers.
func (s *startup) Close() error {
	if !s.over.CompareAndSwap(false, true) {
		return s.Conn.Close()
	}
	if !s.asked.Load() {
		s.of.leave(s, false)
		return s.Conn.Close()
	}
	s.of.giveUp(s)
	go s.linger()
	return nil
}

// linger waits until PostgreSQL answers or closes the connection, or its machine is gone.
func (s *startup) linger() {
	defer s.of.leave(s, false)
	defer s.Conn.Close()
	for {
		s.Conn.SetReadDeadline(time.Now().Add(lingerCheck))
		var answer [1]byte
		if _, err := s.Conn.Read(answer[:]); !errors.Is(err, os.ErrDeadlineExceeded) || s.gone() {
			return
		}
	}
}

func (s *startup) gone() bool {
	if registered, ok := s.Conn.(*socket); ok {
		return dead(registered.Conn)
	}
	return dead(s.Conn)
}

// started ends the start-up of a connection.
func started(conn *pgconn.PgConn) {
	if s := under[*startup](conn); s != nil && s.over.CompareAndSwap(false, true) {
		s.of.leave(s, true)
	}
}

// NetConn returns the connection below, as that of TLS does.
func (s *startup) NetConn() net.Conn { return s.Conn }

// connecting marks the context of an attempt to connect. Requests to cancel a statement are dialled by the same function, and are
// not bounded: they start nothing, and make room.
type connecting struct{}

// marker marks contexts. It is a pgx.QueryTracer, as the field demands.
type marker struct{}

func (marker) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return context.WithValue(ctx, connecting{}, true)
}
func (marker) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) {}
func (marker) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (marker) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// admit changes a configuration so that its connections start when the admission of their address allows it.
func (h *hosts) admit(cfg *pgx.ConnConfig) {
	dial, validate := cfg.DialFunc, cfg.ValidateConnect
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if ctx.Value(connecting{}) == nil {
			return dial(ctx, network, address)
		}
		// A configuration may have been admitted twice: it counts once.
		return dialStartup(context.WithValue(ctx, connecting{}, nil), h.admission(address), dial, network, address)
	}
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		started(conn)
		if validate == nil {
			return nil
		}
		return validate(ctx, conn)
	}
	switch cfg.Tracer.(type) {
	case marker, nil:
		cfg.Tracer = marker{}
	default:
		cfg.Tracer = multitracer.New(cfg.Tracer, marker{})
	}
}

func (h *hosts) admission(address string) *admission {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.admissions[address]
	if a == nil {
		a = &admission{most: maxStarting}
		h.admissions[address] = a
	}
	return a
}

// BoundStartups bounds how many connections of a configuration are in start-up at a time, together with those of all
// configurations with the same servers. Open and Connect do so themselves.
func BoundStartups(cfg *pgx.ConnConfig) { hostsOf(cfg).admit(cfg) }
