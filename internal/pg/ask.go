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

// watchName is the application_name of the watch's connections.
const watchName = AppName + " watch"

// ownConn is a connection of the watch to one server.
type ownConn struct {
	*pgconn.PgConn
	raw    net.Conn
	opened atomic.Bool
}

// closeTimeout bounds the wait for a server that closes its end of a connection.
const closeTimeout = time.Second

// close ends the connection. It does not wait for a server that does not answer.
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
		conn, err := dialStartup(ctx, &s.admission, dial, network, address)
		h.mu.Lock()
		s.addresses[address] = true
		h.mu.Unlock()
		if err == nil {
			enableKeepAlive(conn.(*startup).Conn)
			c.raw = conn
		}
		return conn, err
	}
	var err error
	c.PgConn, err = pgconn.ConnectConfig(ctx, &cfg.Config)
	c.opened.Store(true)
	if err == nil {
		started(c.PgConn)
	}
	return c, err
}

// only reduces a configuration to one server, and keeps its attempts with and without TLS.
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

// answer is the answer of a server, and the connection on which it came, or nil.
type answer struct {
	conn *ownConn
	who  identity
	err  error
}

// came reports whether the server has answered, even with an error.
func (a answer) came() bool { return a.err == nil || Code(a.err) != "" }

// askServer asks a server for its identity: on the watch's open connection, and also on a new one if there is none or if
// no answer comes within doubtAfter. The first answer counts, because one connection may hang while the server works, and a
// loaded server may be slow to open another one. The connection that answered first is kept.
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

// askAnew asks on a new connection. If the connection works but the question fails (a pooler may have no free connection to
// the server), this counts as an answer with an unknown identity.
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

// askFirst asks all servers before the first connection, if there are several and the watch does not run yet.
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
		return // a missing answer proves nothing: the caller's context ended early
	}
	for range 2 { // the first server is judged again with what the last one has told
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
