package gateway

import (
	"math"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// retentionFields are what a stream keeps, in a body and in an answer.
type retentionFields struct {
	MaxAgeMS int64 `json:"max_age_ms"` // 0: no limit
	MaxBytes int64 `json:"max_bytes"`  // 0: no limit
	Consumed bool  `json:"consumed"`
}

func (c *call) retention() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) {
		return
	}
	r, err := query(c.ctx, c, func() (engine.Retention, error) { return admin.Retention(c.ctx, c.stream()) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(retentionFields{r.MaxAge.Milliseconds(), r.MaxBytes, r.Consumed})
}

// setRetention sets all limits: one that is missing is removed.
func (c *call) setRetention() {
	admin := c.api.server.cfg.Engine.Streams
	var body retentionFields
	if !c.served(admin != nil) || !c.readStrict(&body) {
		return
	}
	const longest = int64(math.MaxInt64 / time.Millisecond)
	switch {
	case body.MaxAgeMS < 0 || body.MaxAgeMS > longest:
		c.refuseFor(wrong(codeDuration, "max_age_ms", between(0, longest)))
		return
	case body.MaxBytes < 0:
		c.refuseFor(wrong(engine.CodeInvalid, "max_bytes", "a number, 0 or more"))
		return
	}
	r := engine.Retention{MaxAge: time.Duration(body.MaxAgeMS) * time.Millisecond, MaxBytes: body.MaxBytes, Consumed: body.Consumed}
	c.acts(admin.SetRetention(c.ctx, c.stream(), r), actRetain, c.stream(), body)
}

// acts answers after an act of an operator, and records it.
func (c *call) acts(err error, act, target string, answer any) {
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.acted(act, target)
	c.answer(answer)
}

// seekGroup sets the offset of a group, also backwards.
func (c *call) seekGroup() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) || !c.readJSON(false, wire.Of(wire.FieldAfter, wire.FieldAt, wire.FieldFrom)) {
		return
	}
	to, why := c.body.start()
	if why == nil && c.body.Given&wire.Of(wire.FieldAfter, wire.FieldAt, wire.FieldFrom) == 0 {
		why = wrong(codeStart, "after", "one of after, at, and from (start or end)")
	}
	if why != nil {
		c.refuseFor(why)
		return
	}
	group := c.r.PathValue("group")
	offset, err := query(c.ctx, c, func() (int64, error) { return admin.SeekGroup(c.ctx, c.stream(), group, to) })
	c.acts(err, actSeek, c.stream()+" "+group, reply{Position: &offset})
}

func (c *call) dropGroup() {
	admin := c.api.server.cfg.Engine.Streams
	if !c.served(admin != nil) {
		return
	}
	group := c.r.PathValue("group")
	c.acts(admin.DropGroup(c.ctx, c.stream(), group), actDropGroup, c.stream()+" "+group, map[string]any{"stream": c.stream(), "group": group})
}

// queueOptionsAnswer are the options of a queue.
type queueOptionsAnswer struct {
	Queue       string `json:"queue"`
	MaxAttempts int    `json:"max_attempts"`
	RetryMinMS  int64  `json:"retry_min_ms"`
	RetryMaxMS  int64  `json:"retry_max_ms"`
	Priorities  int    `json:"priorities,omitempty"`
	Partitions  int    `json:"partitions,omitempty"`
}

func optionsOf(queue string, o engine.QueueOptions) queueOptionsAnswer {
	return queueOptionsAnswer{queue, o.MaxAttempts, o.RetryMin.Milliseconds(), o.RetryMax.Milliseconds(), o.Priorities, o.Partitions}
}

func (c *call) queueOptions() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	options, err := query(c.ctx, c, func() (engine.QueueOptions, error) { return admin.Options(c.ctx, c.queue()) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(optionsOf(c.queue(), options))
}

// alterQueue changes the options that the body names.
func (c *call) alterQueue() {
	admin := c.api.server.cfg.Engine.Queues
	changeable := wire.Of(wire.FieldMaxAttempts, wire.FieldRetryMinMS, wire.FieldRetryMaxMS)
	if !c.served(admin != nil) || !c.readJSON(false, changeable) {
		return
	}
	changes, why := c.body.queueOptions()
	if why == nil && changes == nil {
		why = malformed("max_attempts", "max_attempts, retry_min_ms or retry_max_ms")
	}
	for _, f := range []struct {
		field wire.Field
		value int64
	}{{wire.FieldMaxAttempts, c.body.MaxAttempts}, {wire.FieldRetryMinMS, c.body.RetryMinMS}, {wire.FieldRetryMaxMS, c.body.RetryMaxMS}} {
		if why == nil && c.body.Has(f.field) && f.value == 0 {
			why = wrong(engine.CodeInvalid, f.field.String(), "1 or more: leave it out to keep it as it is")
		}
	}
	if why != nil {
		c.refuseFor(why)
		return
	}
	options, err := admin.Alter(c.ctx, c.queue(), *changes)
	c.acts(err, actAlterQueue, c.queue(), optionsOf(c.queue(), options))
}

func (c *call) pauseQueue() {
	if admin := c.api.server.cfg.Engine.Queues; c.served(admin != nil) {
		c.acts(admin.Pause(c.ctx, c.queue()), actPause, c.queue(), map[string]any{"queue": c.queue(), "paused": true})
	}
}

func (c *call) resumeQueue() {
	if admin := c.api.server.cfg.Engine.Queues; c.served(admin != nil) {
		c.acts(admin.Resume(c.ctx, c.queue()), actResume, c.queue(), map[string]any{"queue": c.queue(), "paused": false})
	}
}

// counted is the answer of an act on some messages.
type counted struct {
	Count int64 `json:"count"`
}

// purgeQueue removes all messages that nobody is working on.
func (c *call) purgeQueue() {
	admin := c.api.server.cfg.Engine.Queues
	var body struct {
		Dead bool `json:"dead"`
	}
	if !c.served(admin != nil) || !c.readStrict(&body) {
		return
	}
	n, err := admin.Purge(c.ctx, c.queue(), body.Dead)
	c.acts(err, actPurge, c.queue(), counted{n})
}

// peekQueue answers with the next messages, which stay in the queue.
func (c *call) peekQueue() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	limit, ok := c.number("limit", 1, maxBatch, 100)
	if !ok {
		return
	}
	page, err := readPage(c, func() ([]engine.Message, error) { return admin.Peek(c.ctx, c.queue(), int(limit)) }, messageBytes)
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	var w wire.Writer
	w.Open()
	w.Name("messages")
	w.OpenList()
	for i := range page {
		w.Next()
		w.Open()
		writeBody(&w, &page[i])
		w.Close()
	}
	w.CloseList()
	w.Close()
	c.write(w.Buf)
}

func (c *call) listStores() {
	admin := c.api.server.cfg.Engine.Events
	if !c.served(admin != nil) {
		return
	}
	names, err := query(c.ctx, c, func() ([]string, error) { return admin.List(c.ctx) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	all := []map[string]string{}
	for _, name := range names {
		if c.caller == nil || c.caller.MaySee(auth.Events, name) {
			all = append(all, map[string]string{"store": name})
		}
	}
	c.answer(map[string]any{"stores": all})
}

func (c *call) createStore() {
	if admin := c.api.server.cfg.Engine.Events; c.served(admin != nil) {
		c.acts(admin.Create(c.ctx, c.eventStore()), actCreateStore, c.eventStore(), map[string]any{"store": c.eventStore()})
	}
}

func (c *call) storeInfo() {
	admin := c.api.server.cfg.Engine.Events
	if !c.served(admin != nil) {
		return
	}
	head, err := query(c.ctx, c, func() (int64, error) { return admin.Head(c.ctx, c.eventStore()) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(map[string]any{"store": c.eventStore(), "head": head})
}

func (c *call) dropStore() {
	if admin := c.api.server.cfg.Engine.Events; c.served(admin != nil) {
		c.acts(admin.Drop(c.ctx, c.eventStore()), actDropStore, c.eventStore(), map[string]any{"store": c.eventStore()})
	}
}

// eventStore is the event store that the path names.
func (c *call) eventStore() string { return c.r.PathValue("store") }
