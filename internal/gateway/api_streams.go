package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

func (c *call) listStreams() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) {
		return
	}
	all, err := query(c.ctx, c, func() ([]engine.StreamInfo, error) { return admin.List(c.ctx) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	all = slices.DeleteFunc(all, func(s engine.StreamInfo) bool {
		return engine.Reserved(s.Name) || c.caller != nil && !c.caller.MaySee(auth.Stream, s.Name)
	})
	if all == nil {
		all = []engine.StreamInfo{}
	}
	c.answer(map[string]any{"streams": all})
}

func (c *call) createStream() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) || !c.readJSON(true, wire.StreamOptions) {
		return
	}
	n := int(c.body.Partitions)
	if most := c.api.server.cfg.MaxPartitions; n < 0 || n > most {
		c.fail(&engine.FieldError{Field: "partitions", Problem: fmt.Sprintf("%d, want 0 to %d (the server's --max-partitions)", n, most)}, engine.CodeInvalid)
		return
	}
	made, err := admin.Create(c.ctx, c.stream(), c.body.streamOptions())
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.acted(actCreateStream, c.stream())
	answer := map[string]any{"stream": c.stream(), "keyed": made.Keyed}
	if made.Partitions > 0 {
		answer["partitions"] = made.Partitions
	}
	c.answer(answer)
}

func (c *call) streamInfo() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) {
		return
	}
	info, err := query(c.ctx, c, func() (engine.StreamDetails, error) { return admin.Info(c.ctx, c.stream()) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(info)
}

// listGroups answers with a page of the stream's groups, and the name after
// which the next page begins.
func (c *call) listGroups() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) {
		return
	}
	limit, ok := c.number("limit", 1, maxBatch, 100)
	if !ok {
		return
	}
	after := c.r.URL.Query().Get("after")
	if after != "" && !validName(after) {
		c.refuseFor(wrong(codeParameter, "after", "a name of 1 to 128 bytes"))
		return
	}
	groups, err := query(c.ctx, c, func() ([]engine.GroupInfo, error) { return admin.Groups(c.ctx, c.stream(), after, int(limit)) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	next := after
	if n := len(groups); n > 0 {
		next = groups[n-1].Name
	} else {
		groups = []engine.GroupInfo{}
	}
	c.answer(groupsPage{groups, next})
}

// groupsPage is the answer of listGroups.
type groupsPage struct {
	Groups []engine.GroupInfo `json:"groups"`
	Next   string             `json:"next"`
}

func (c *call) dropStream() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) {
		return
	}
	if err := admin.Drop(c.ctx, c.stream()); err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.acted(actDropStream, c.stream())
	c.answer(map[string]any{"stream": c.stream()})
}

func (c *call) publish() {
	store := c.api.server.cfg.Engine.Streams
	if !c.served(store != nil) {
		return
	}
	messages, ok := c.messages(wire.Requests["publish"])
	if !ok {
		return
	}
	as, why := c.requestID()
	if why != nil {
		c.refuseFor(why)
		return
	}
	c.store(messages, func(done func(engine.Place, error)) error {
		return store.Publish(c.ctx, c.stream(), as, messages, done)
	})
}

// messages returns the messages to store: those of the JSON body, or, with
// ?raw, the body itself as one message with the key of ?key.
func (c *call) messages(fields wire.Fields) ([]engine.Message, bool) {
	query := c.r.URL.Query()
	if !query.Has("raw") {
		if !c.readJSON(false, fields) {
			return nil, false
		}
		messages, why := c.body.messages(new([1]engine.Message))
		if why != nil {
			c.refuseFor(why)
			return nil, false
		}
		return messages, true
	}
	switch mediaType(c.r) {
	case "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data": // a page of another origin may send these without a CORS preflight
		c.refuse(codeMediaType)
		return nil, false
	}
	if !utf8.ValidString(query.Get("key")) {
		c.refuseFor(wrong(engine.CodeInvalid, "key", "UTF-8"))
		return nil, false
	}
	body, ok := c.read()
	return []engine.Message{{Key: query.Get("key"), Payload: body}}, ok
}

// store stores messages and answers after the commit.
func (c *call) store(messages []engine.Message, store func(done func(engine.Place, error)) error) {
	type result struct {
		first engine.Place
		err   error
	}
	results := make(chan result, 1)
	began := c.api.server.sessions.latency.Begin()
	if err := store(func(first engine.Place, err error) { results <- result{first, err} }); err != nil {
		c.fail(err, codeNotStored)
		return
	}
	select {
	case r := <-results:
		if r.err != nil {
			c.fail(r.err, codeNotStored)
			return
		}
		c.api.server.sessions.latency.End(began)
		if !r.first.Duplicate {
			c.api.server.sessions.stored.Add(uint64(len(messages)))
		}
		c.answer(stored(&r.first, len(messages)))
	case <-c.ctx.Done():
		c.fail(errors.Join(engine.ErrOutcomeUnknown, c.ctx.Err()), engine.CodeUnknownOutcome)
	}
}

// readStream answers with messages after a position, and the position after
// which the next page begins. If there are none it may wait for some.
func (c *call) readStream() {
	reader := c.api.server.cfg.Engine.Streams
	if !c.served(reader != nil) {
		return
	}
	after, ok := c.number("after", 0, math.MaxInt64, 0)
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
	wait, ok := c.number("wait_ms", 0, maxWait.Milliseconds(), 0)
	if !ok {
		return
	}
	if wait > 0 && key != nil {
		c.refuseFor(wrong(codeParameter, "wait_ms", "none beside key"))
		return
	}
	page, err := readPage(c, func() ([]engine.Message, error) {
		return reader.Read(c.ctx, c.stream(), key, after, int(limit))
	}, messageBytes)
	if err == nil && len(page) == 0 && wait > 0 {
		page, err = c.awaitMessages(after, int(limit), time.Duration(wait)*time.Millisecond)
	}
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	bytes := 0
	for i := range page {
		bytes += messageBytes(&page[i])
	}
	if c.evicted.Load() {
		c.overloaded()
		return
	}
	w := wire.Writer{Buf: make([]byte, 0, bytes)} // a buffer that grows leaves several times as much garbage
	w.Open()
	w.Name("messages")
	w.OpenList()
	for i := range page {
		if c.ctx.Err() != nil { // the server stops, or the request was evicted
			c.fail(c.ctx.Err(), codeUnavailable)
			return
		}
		w.Next()
		w.Open()
		writeBody(&w, &page[i])
		w.Close()
		after = page[i].Position
	}
	w.CloseList()
	w.Name("next")
	w.Int(after)
	w.Close()
	c.write(w.Buf)
}

// awaitMessages waits for messages after a position (a long poll). It returns none if none come in time, the client goes, or the server stops.
func (c *call) awaitMessages(after int64, limit int, wait time.Duration) ([]engine.Message, error) {
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	defer context.AfterFunc(c.api.polls, cancel)()
	defer context.AfterFunc(c.r.Context(), cancel)()
	if err := c.memory.Reserve(ctx, budget.Follow, followOverhead); err != nil {
		return nil, err
	}
	source, err := query(ctx, c, func() (engine.Subscription, error) {
		return c.api.server.cfg.Engine.Streams.Subscribe(ctx, c.stream(), engine.Start{After: after})
	})
	if err == nil {
		defer source.Close()
		var page []engine.Message
		if page, err = source.Next(ctx, limit); err == nil {
			for i := range page {
				c.memory.Take(budget.Page, int64(messageBytes(&page[i])))
			}
			return page, c.permitted()
		}
	}
	if ctx.Err() != nil && c.ctx.Err() == nil {
		return nil, nil
	}
	return nil, err
}

// permitted returns an error if the caller may not have the answer any more: then it is refused.
func (c *call) permitted() error {
	if c.stillAuthorized() {
		return nil
	}
	return errRefused
}

func key(query url.Values) *string {
	if !query.Has("key") {
		return nil
	}
	k := query.Get("key")
	return &k
}

func (c *call) commit() {
	store := c.api.server.cfg.Engine.Streams
	if !c.served(store != nil) || !c.readJSON(false, wire.Requests["commit"]&^wire.Of(wire.FieldPartition)) {
		return
	}
	position, why := c.body.commitPosition()
	if why != nil {
		c.refuseFor(why)
		return
	}
	offset, err := query(c.ctx, c, func() (int64, error) { return store.Commit(c.ctx, c.stream(), c.r.PathValue("group"), position) })
	if err != nil {
		c.fail(err, codeNotStored)
		return
	}
	c.answer(reply{Position: &offset})
}
