package pg

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// watchName is the application_name of the connections over which servers are asked.
const watchName = AppName + " watch"

// ownConn is a connection to one server, over which it is asked.
type ownConn struct {
	*pgconn.PgConn
	raw    net.Conn
	opened atomic.Bool
}

// closeTimeout bounds the wait for a server that ends its connection.
const closeTimeout = time.Second

// close ends the connection. A server that does not answer is not waited for.
func (c *ownConn) close(answers bool) {
	if answers {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		c.Close(ctx)
		cancel()
	}
	c.raw.Close()
}

// connectTo opens a connection to one server.
func (h *hosts) connectTo(ctx context.Context, s *server) (*ownConn, error) {
	c := &ownConn{}
	h.mu.Lock()
	cfg := h.config.Copy()
	h.mu.Unlock()
	only(&cfg.Config, s)
	cfg.ConnectTimeout, cfg.ValidateConnect, cfg.AfterConnect, cfg.OnNotice, cfg.OnNotification = 0, nil, nil, nil, nil
	cfg.RuntimeParams = map[string]string{"application_name": watchName}
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if c.opened.Load() {
			return nil, errors.New("pg: nothing to cancel")
		}
		conn, err := dial(ctx, network, address)
		h.mu.Lock()
		s.addresses[address] = true
		h.mu.Unlock()
		if err == nil {
			noticeDeath(conn)
			c.raw = conn
		}
		return conn, err
	}
	var err error
	c.PgConn, err = pgconn.ConnectConfig(ctx, &cfg.Config)
	c.opened.Store(true)
	return c, err
}

// only has a configuration name one server, with TLS and without as it was.
func only(cfg *pgconn.Config, s *server) {
	all := append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
	cfg.Fallbacks = nil
	first := true
	for _, f := range all {
		switch {
		case f.Host != s.host || f.Port != s.port:
		case first:
			cfg.Host, cfg.Port, cfg.TLSConfig = f.Host, f.Port, f.TLSConfig
			first = false
		default:
			cfg.Fallbacks = append(cfg.Fallbacks, f)
		}
	}
}

// answer is what a server has said on a connection, which is nil if there is none.
type answer struct {
	conn *ownConn
	who  identity
	err  error
}

// came reports whether the server has answered, if only to refuse something.
func (a answer) came() bool { return a.err == nil || Code(a.err) != "" }

// askServer asks over the connection of the watch, and over a new one if there is none, or if no answer comes soon. The
// first answer counts: a single connection may hang on a server that works, and a server under load may take long to
// open another one. The connection that has answered is kept.
func (h *hosts) askServer(ctx context.Context, s *server) (identity, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer)
	waiting := 0
	var doubt <-chan time.Time
	anew := func() {
		waiting, doubt = waiting+1, nil
		go func() { answers <- h.askAnew(ctx, s) }()
	}
	if open := s.conn; open == nil {
		anew()
	} else {
		waiting, doubt, s.conn = 1, time.After(doubtAfter), nil
		go func() {
			who, err := h.identify(ctx, open.PgConn)
			answers <- answer{open, who, err}
		}()
	}
	var first answer
	for answered := false; waiting > 0; {
		select {
		case <-doubt:
			anew()
		case a := <-answers:
			waiting--
			if !answered {
				first, answered = a, a.came()
			}
			switch {
			case answered:
				doubt = nil
				cancel()
			case doubt != nil: // the open connection has ended
				anew()
			}
			switch {
			case a.conn == nil:
			case a.err == nil && a.conn == first.conn:
				s.conn = a.conn
			default:
				a.conn.close(false)
			}
		}
	}
	return first.who, first.err
}

// askAnew asks over a new connection. A pooler that answers and has no connection to spare is there, as a server is that
// refuses: then the identity is unknown.
func (h *hosts) askAnew(ctx context.Context, s *server) answer {
	conn, err := h.connectTo(ctx, s)
	if err != nil {
		return answer{err: err}
	}
	who, err := h.identify(ctx, conn.PgConn)
	if err != nil {
		conn.close(false)
		return answer{}
	}
	return answer{conn, who, nil}
}

// closeOwn ends the connections of the watch.
func (h *hosts) closeOwn() {
	for _, s := range h.servers {
		if s.conn != nil {
			s.conn.close(true)
			s.conn = nil
		}
	}
}

// askFirst asks all of several servers before the first one is trusted, unless that is known already.
func (h *hosts) askFirst(ctx context.Context) {
	h.mu.Lock()
	known := h.watched || !h.several()
	h.mu.Unlock()
	if known {
		return
	}
	began := time.Now()
	bound, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	found, errs := make([]identity, len(h.servers)), make([]error, len(h.servers))
	var asked sync.WaitGroup
	for i, s := range h.servers {
		asked.Go(func() { found[i], errs[i] = h.askOnce(bound, s) })
	}
	asked.Wait()
	if ctx.Err() != nil {
		return // the caller has not waited long enough to know
	}
	for range 2 { // the last one may say what the first one did not know
		for i, s := range h.servers {
			if h.note(s, began, errs[i]); errs[i] == nil {
				h.learn(s, found[i])
			}
		}
	}
}

func (h *hosts) askOnce(ctx context.Context, s *server) (identity, error) {
	conn, err := h.connectTo(ctx, s)
	if err != nil {
		return identity{}, err
	}
	who, err := h.identify(ctx, conn.PgConn)
	conn.close(err == nil)
	return who, err
}

// connect opens a connection to one of the servers.
func (h *hosts) connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	h.guard(cfg)
	h.askFirst(ctx)
	return pgx.ConnectConfig(ctx, cfg)
}
