package gateway

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// echo returns every message with its opcode. All answers to one read of the
// socket leave in one write. A message may have any number of fragments: conformance suites try that.
func (s *Server) echo(w http.ResponseWriter, r *http.Request) {
	s.accept(w, r, websocket.Config{MaxFragments: -1}, func(c *connection) {
		c.identity.begin(false)
		c.whenStopped(func() { c.SetReadDeadline(time.Now()) })
		for {
			messages, err := c.Read()
			for _, m := range messages {
				if err := c.Queue(m.Op, m.Payload); err != nil {
					c.Abort()
					return
				}
			}
			if err != nil {
				c.Close(ended(c, err))
				return
			}
		}
	})
}

// closeCode is the close code after Read has ended with err: the peer's own
// code for its Close frame, "going away" for a deadline that Shutdown set, and
// "policy violation" for any other deadline: the peer was silent for too long.
func closeCode(c *connection, err error) websocket.StatusCode {
	var closed *websocket.CloseError
	switch {
	case errors.As(err, &closed):
		return closed.Code
	case c.broken.Load():
		return websocket.StatusInternalError
	case c.evicted.Load():
		return websocket.StatusTryAgainLater
	case c.final.Load() != nil:
		return c.final.Load().code
	case c.stopping():
		return websocket.StatusGoingAway
	case errors.Is(err, os.ErrDeadlineExceeded):
		return websocket.StatusPolicyViolation
	default:
		return websocket.StatusNormal
	}
}
