package gateway

import (
	"math"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

const (
	// maxSearch is the longest text, path and value that can be looked for, in bytes.
	maxSearch = 1024
	// maxSearchDepth is how many names a path has: each is a pass over a payload.
	maxSearchDepth = 16
	// A request reads at most searchMessages, and no further page after searchBytes: the client goes on with the next request.
	searchMessages = 10_000
	searchBytes    = 8 << 20
	// maxSearches is how many requests of a server read at a time, of one user at most 2. Others wait.
	maxSearches = 3
)

// found is what a request has found, and how far it has read.
type found struct {
	messages    []engine.Message
	next        int64 // the last position that it has looked at
	read, bytes int64
	done        bool // nothing is left in the range
}

// searchStream answers with the messages of a range that a search selects.
func (c *call) searchStream() {
	if !c.served(c.api.server.cfg.Engine.Streams != nil) {
		return
	}
	s, ok := c.searched()
	if !ok {
		return
	}
	after, ok := c.number("after", 0, math.MaxInt64, 0)
	if !ok {
		return
	}
	until, ok := c.number("until", 0, math.MaxInt64, math.MaxInt64)
	if !ok {
		return
	}
	limit, ok := c.number("limit", 1, maxBatch, 100)
	if !ok {
		return
	}
	key := key(c.r.URL.Query())
	if key != nil && !utf8.ValidString(*key) {
		c.refuseFor(wrong(engine.CodeInvalid, "key", "UTF-8"))
		return
	}
	err := c.memory.Reserve(c.ctx, budget.Page, pageReserve)
	var f found
	if err == nil {
		f, err = query(c.ctx, shared{c, userOrAddress(c.api.server.limits.ClientAddress(c.r), c.caller), c.api.searching}, func() (found, error) { return c.find(s, key, after, until, int(limit)) })
	}
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	var w wire.Writer
	w.Open()
	w.Name("messages")
	w.OpenList()
	for i := range f.messages {
		w.Next()
		w.Open()
		writeBody(&w, &f.messages[i])
		w.Close()
	}
	w.CloseList()
	w.Name("next")
	w.Int(f.next)
	w.Name("read")
	w.Int(f.read)
	w.Name("bytes")
	w.Int(f.bytes)
	w.Name("done")
	w.Bool(f.done)
	w.Close()
	c.write(w.Buf)
}

// find reads pages until it has found enough, or has read enough. It keeps what it has found, and one page.
func (c *call) find(s search, key *string, after, until int64, limit int) (f found, err error) {
	f.next = after
	for f.read < searchMessages && f.bytes < searchBytes && len(f.messages) < limit && !f.done {
		page, err := c.api.server.cfg.Engine.Streams.Read(c.ctx, c.stream(), key, f.next, maxBatch)
		if err != nil {
			return f, err
		}
		f.done = len(page) == 0
		kept := int64(0)
		for i := range page {
			m := &page[i]
			if m.Position > until {
				f.next, f.done = until, true
				break
			}
			f.next, f.read, f.bytes = m.Position, f.read+1, f.bytes+int64(messageBytes(m))
			if s.matches(m) {
				f.messages, kept = append(f.messages, *m), kept+int64(messageBytes(m))
			}
			if len(f.messages) == limit {
				break
			}
		}
		c.memory.Take(budget.Page, kept) // the page itself is in what was reserved
		f.done = f.done || f.next >= until
		if c.ctx.Err() != nil {
			return f, c.ctx.Err()
		}
	}
	return f, nil
}
