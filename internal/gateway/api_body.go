package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
)

// read returns the body, or false if it has refused the call.
func (c *call) read() ([]byte, bool) {
	most := int64(c.api.server.cfg.MaxMessage)
	if n := c.r.ContentLength; n >= 0 && n < most {
		most = n
	}
	if err := c.memory.Reserve(c.ctx, budget.Body, 2*most); err != nil { // the bytes and their decoded form
		dropBody(c.w, c.r)
		c.fail(err, codeUnavailable)
		return nil, false
	}
	end := c.boundRead()
	if c.r.ContentLength > int64(c.api.server.cfg.MaxMessage) { // refused at once, before the client sends it
		end(false)
		c.refuseFor(tooLarge(c.api.server.cfg.MaxMessage))
		return nil, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, int64(c.api.server.cfg.MaxMessage)))
	end(err == nil)
	if c.r.ContentLength < 0 { // else it is counted already
		c.count.Owe(time.Now(), len(body))
	}
	var large *http.MaxBytesError
	switch {
	case err != nil && c.evicted.Load():
		c.overloaded()
	case errors.As(err, &large):
		c.refuseFor(tooLarge(c.api.server.cfg.MaxMessage))
	case err != nil && c.api.polls.Err() != nil:
		c.refuse(codeStopping)
	case err != nil: // the client has gone, most likely
		c.refuseFor(errShortBody)
	}
	return body, err == nil && c.stillAuthorized()
}

// boundRead sets a deadline for the body: BodyTimeout, DrainTimeout after
// the server begins to stop, or none left when the request is evicted. The function that it returns removes the deadline if the
// body has arrived. If not, nothing more of it is read: package http would wait for the
// rest of a small body before it sends the answer.
func (c *call) boundRead() (end func(arrived bool)) {
	c.readFor(c.api.server.cfg.BodyTimeout)
	hurried := make(chan struct{})
	stop := context.AfterFunc(c.api.polls, func() {
		c.readFor(c.api.server.cfg.DrainTimeout)
		close(hurried)
	})
	return func(arrived bool) {
		if !stop() {
			<-hurried // otherwise its deadline might be set after that of the next lines
		}
		c.evicting.Lock()
		c.reading = false
		c.evicting.Unlock()
		deadline := http.NewResponseController(c.w)
		if arrived {
			deadline.SetReadDeadline(time.Time{})
			return
		}
		c.w.Header().Set("Connection", "close")
		deadline.SetReadDeadline(time.Now())
	}
}

// readFor sets the deadline of the body, unless the request is evicted: then nothing more is read.
func (c *call) readFor(d time.Duration) {
	c.evicting.Lock()
	defer c.evicting.Unlock()
	c.reading = true
	if c.evicted.Load() {
		d = 0
	}
	http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(d)) // an error means that the connection has no deadlines
}
