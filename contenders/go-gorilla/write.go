package main

import (
	"fmt"
	"time"

	"github.com/gorilla/websocket"
)

const (
	writeWait = 10 * time.Second // time limit for writing one message to the socket
	closeWait = 3 * time.Second  // for the peer's answer to a Close frame
)

// writePump is the only goroutine that writes messages: the queued ones, and a
// ping at each interval.
func (c *client) writePump() {
	ticker := time.NewTicker(c.server.cfg.pingInterval)
	defer ticker.Stop()
	defer close(c.gone)
	for {
		select {
		case m, open := <-c.send:
			if !open {
				c.writeClose(websocket.CloseNormalClosure)
				return
			}
			if !c.write(m) {
				return
			}
		case now := <-ticker.C:
			if !c.write(outgoing{payload: fmt.Appendf(nil, `{"type":"ping","ts":%d}`, now.UnixMilli())}) {
				return
			}
		case <-c.server.stopping:
			c.writeRest()
			c.writeClose(websocket.CloseGoingAway)
			return
		}
	}
}

// write returns false if the connection is broken. Then it closes the
// connection, so that readPump ends.
func (c *client) write(m outgoing) bool {
	c.conn.SetWriteDeadline(time.Now().Add(writeWait))
	if err := c.conn.WriteMessage(websocket.TextMessage, m.payload); err != nil {
		c.conn.Close()
		return false
	}
	if m.chat {
		c.server.stats.deliveries.Add(1)
	}
	return true
}

// writeRest writes the messages that were queued before the stop.
func (c *client) writeRest() {
	for range len(c.send) {
		if m, open := <-c.send; !open || !c.write(m) {
			return
		}
	}
}

// writeClose sends a Close frame and gives the peer some time to answer.
func (c *client) writeClose(code int) {
	c.closing.Store(true)
	c.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(closeWait))
	time.AfterFunc(closeWait, func() { c.conn.Close() })
}
