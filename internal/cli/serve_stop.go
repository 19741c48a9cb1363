package cli

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/gateway"
)

const (
	// headerTimeout bounds how long a request's header takes to arrive.
	headerTimeout = 10 * time.Second
	// bodyTimeout bounds a body that no handler reads. The HTTP API sets a time of
	// its own for those that it does.
	bodyTimeout = 30 * time.Second
)

// newHTTPServer returns the server of HTTP requests, WebSocket handshakes among
// them: a connection that was upgraded has no time-outs of HTTP any more.
func newHTTPServer(server *gateway.Server, idle time.Duration) *http.Server {
	h := &http.Server{
		Handler:           boundBody(server),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idle, MaxHeaderBytes: 16 << 10,
	}
	h.RegisterOnShutdown(server.EndPolls)
	return h
}

// boundBody gives a request's body a time to arrive: without one, net/http waits
// for a body that it only throws away. There is no http.Server.ReadTimeout,
// because it would end long polls.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// stopHTTP closes the listeners and the idle connections and waits for the
// requests that are under way, of which those that do not end are cut off.
func (c *serveCmd) stopHTTP(h *http.Server) error {
	c.stopping.doing("answering HTTP requests")
	ctx, cancel := c.stopping.until(shareHTTP)
	defer cancel()
	err := h.Shutdown(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("HTTP requests cut off: their clients do not read, or what they asked for takes too long: %w", err), h.Close())
}

// stopConnections closes WebSockets when what arrived on them is answered.
func (c *serveCmd) stopConnections(server *gateway.Server) error {
	c.stopping.doing("closing WebSockets")
	ctx, cancel := c.stopping.until(shareEdges)
	defer cancel()
	return server.Shutdown(ctx)
}

// giveUpInTime has what clients wait for given up while there is time to tell them:
// first what they want stored, then all else. It returns what ends that.
func (c *serveCmd) giveUpInTime(server *gateway.Server, s *stores) (end func()) {
	if s == nil {
		return func() {}
	}
	stored := c.stopping.after(shareStored, s.abandon)
	reads := c.stopping.after(shareReads, server.GiveUp)
	return func() {
		stored()
		reads()
	}
}

// stopStores ends the writers, when all that was received is stored or given up.
func (c *serveCmd) stopStores(s *stores) error {
	c.stopping.begin()
	c.stopping.doing("storing what was received")
	ctx, cancel := c.stopping.until(shareWriters)
	defer cancel()
	return s.stop(ctx)
}

// closePool closes the connections to PostgreSQL.
func (c *serveCmd) closePool(pool *pgxpool.Pool) error {
	err := c.closeInTime("closing the connections to PostgreSQL", pool.Close)
	if err != nil {
		err = fmt.Errorf("%w: %d do not end", err, pool.Stat().TotalConns())
	}
	return err
}

// closeInTime closes connections, which pgx waits for without a bound: one that is at work, or that
// PostgreSQL does not answer, is left to the end of the process.
func (c *serveCmd) closeInTime(doing string, end func()) error {
	c.stopping.begin()
	c.stopping.doing(doing)
	ctx, cancel := c.stopping.until(sharePool)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		end()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: given up", doing)
	}
}

// stopDatabase stops a private PostgreSQL.
func (c *serveCmd) stopDatabase(db *database) error {
	c.stopping.begin()
	c.stopping.doing("stopping the private PostgreSQL")
	ctx, cancel := c.stopping.until(sharePG)
	defer cancel()
	return db.stop(ctx)
}
