package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
)

const (
	// answerTimeout is how long a client may take to read answerChunk bytes of
	// an answer. The deadline moves with each chunk: a slow client is served,
	// and one that has stopped reading is disconnected.
	answerTimeout = 60 * time.Second
	answerChunk   = 16 << 10
	// pageReserve is how many bytes a request reserves before it reads a page
	// of unknown size, or waits for one.
	pageReserve = 256 << 10
)

// reserve waits until the request may hold n more bytes, or refuses it. The end
// of the request releases them.
func (c *call) reserve(k budget.Kind, n int64) bool {
	err := c.memory.Reserve(c.ctx, k, n)
	if err != nil {
		c.fail(err, codeUnavailable)
	}
	return err == nil
}

// evict ends the request, because it holds the most while memory is short. It may
// be called after the request has ended, when its connection already serves the
// next one.
func (c *call) evict() {
	c.evicting.Lock()
	defer c.evicting.Unlock()
	if c.ended {
		return
	}
	c.evicted.Store(true)
	c.cancel()
	http.NewResponseController(c.w).SetWriteDeadline(time.Now()) // it may be sending its answer
	if c.reading {
		http.NewResponseController(c.w).SetReadDeadline(time.Now())
	}
}

// end ensures that evict does not touch the connection any more, since the next
// request may use it.
func (c *call) end() {
	c.memory.Close()
	c.evicting.Lock()
	defer c.evicting.Unlock()
	c.ended = true
	if c.evicted.Load() {
		http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(answerTimeout)) // for the rest of the answer
	}
}

func (c *call) overloaded() {
	c.w.Header().Set("Retry-After", "1")
	writeError(c.w, refusal(codeOverloaded))
}

// answerReserve is how many bytes are reserved for a page that is read at once, and for what is made of it: stores return up to 1 MiB. A small
// budget has room for some of them.
func (a *api) answerReserve() int64 { return min(2<<20, a.server.cfg.Budget.Limit()/16) }

// readPage reads a page of a store, and counts it in the memory budget, with the answer that is made of it.
func readPage[T any](c *call, read func() ([]T, error), bytes func(*T) int) ([]T, error) {
	reserved := c.api.answerReserve()
	if err := c.memory.Reserve(c.ctx, budget.Page, reserved); err != nil {
		return nil, err
	}
	page, err := query(c.ctx, c, read)
	held := 0
	for i := range page {
		held += bytes(&page[i])
	}
	c.memory.Take(budget.Page, 2*int64(held)-reserved) // Take and Release ignore values below 1
	c.memory.Release(budget.Page, reserved-2*int64(held))
	c.encoding = int64(held)
	return page, err
}

// write sends an answer as fast as the client reads it.
func (c *call) write(text []byte) {
	c.memory.Take(budget.Body, int64(len(text))-c.encoding)
	deadline := http.NewResponseController(c.w)
	stopping := c.api.polls
	end := context.AfterFunc(stopping, func() {
		deadline.SetWriteDeadline(time.Now().Add(c.api.server.cfg.DrainTimeout))
	})
	setHeaders(c.w.Header())
	c.w.Header().Set("Content-Length", strconv.Itoa(len(text)+1))
	c.w.WriteHeader(http.StatusOK)
	for text = append(text, '\n'); len(text) > 0; {
		if stopping.Err() == nil && !c.evicted.Load() {
			deadline.SetWriteDeadline(time.Now().Add(answerTimeout))
		}
		n, err := c.w.Write(text[:min(len(text), answerChunk)])
		if err != nil {
			end()
			return
		}
		text = text[n:]
	}
	deadline.Flush()
	end()
}

// fail refuses the call because of a store's error.
func (c *call) fail(err error, otherwise code) {
	switch {
	case errors.Is(err, errRefused):
		return
	case codeOf(err, otherwise) == engine.CodeUnknownOutcome:
		// No other error may be answered: one that says to try again would store
		// it twice.
	case c.evicted.Load() || errors.Is(err, budget.ErrEvicted) || errors.Is(err, budget.ErrTooLarge):
		c.overloaded()
		return
	case c.ctx.Err() != nil && c.api.server.work.Err() == nil: // a receive whose client has gone
		c.refuse(codeHalfClosed)
		return
	case c.ctx.Err() != nil && codeOf(err, otherwise) == codeUnavailable:
		c.refuse(codeStopping)
		return
	}
	with := explained(err, otherwise)
	if with.Code == engine.CodeNotFound && with.Message == publicErrors[with.Code] {
		with.Message = c.notFound()
	}
	if needsWarning(with.Code, otherwise) && c.r.Context().Err() == nil {
		c.api.server.sessions.log.warn("request failed", "request_id", requestID(c.r), "method", c.r.Method, "path", c.r.URL.Path, "error", err)
	}
	writeError(c.w, with)
}

// notFound says what there is not, by the names in the path.
func (c *call) notFound() string {
	if name := c.r.PathValue("schedule"); name != "" {
		return fmt.Sprintf("there is no schedule %q", name)
	}
	return object{c.r.PathValue("stream"), c.r.PathValue("queue"), c.r.PathValue("store"), c.r.PathValue("group")}.missing()
}

// answer answers with a value as JSON.
func (c *call) answer(v any) {
	text, err := json.Marshal(v)
	if err != nil { // such as a time that JSON cannot hold
		c.fail(err, codeUnavailable)
		return
	}
	c.write(text)
}

func writeError(w http.ResponseWriter, with reply) {
	with.Type = ""
	text, _ := json.Marshal(map[string]reply{"error": with.complete()}) // no value of ours fails
	status, ok := statuses[with.Code]
	if !ok {
		status = http.StatusBadRequest
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // an error means that the connection has no deadlines
	setHeaders(w.Header())
	if with.RetryAfterMS > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt((with.RetryAfterMS+999)/1000, 10))
	}
	w.WriteHeader(status)
	w.Write(append(text, '\n'))
}

func setHeaders(h http.Header) {
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}
