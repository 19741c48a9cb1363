package gateway

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

const (
	// maxReceive is how many messages one request may lease. maxWait is how long
	// it may wait for them, which is less than a stop may take.
	maxReceive = 1000
	maxWait    = 20 * time.Second
	// minWait is the minimum wait of a receive: the time to find that a queue
	// is empty.
	minWait = 100 * time.Millisecond
)

func (c *call) listQueues() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	names, err := query(c.ctx, c, func() ([]string, error) { return admin.List(c.ctx) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	all := make([]map[string]string, 0, len(names))
	for _, name := range names {
		if c.caller == nil || c.caller.MaySee(auth.Queue, name) {
			all = append(all, map[string]string{"queue": name})
		}
	}
	c.answer(map[string]any{"queues": all})
}

func (c *call) createQueue() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) || !c.readJSON(true, wire.QueueOptions) {
		return
	}
	opts, why := c.body.queueOptions()
	if why != nil {
		c.refuseFor(why)
		return
	}
	if c.caller != nil && !c.permit(c.mayMakeStreams(opts)) {
		return
	}
	if err := admin.Create(c.ctx, c.queue(), opts); err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.acted(actCreateQueue, c.queue())
	c.answer(map[string]any{"queue": c.queue()})
}

// mayMakeStreams returns why the caller may not make the streams that a queue consists of. It asks whether they exist or not, so that an answer does not
// tell, and nobody can make one meanwhile: an unused stream of such a name becomes the queue's, and goes with it.
func (c *call) mayMakeStreams(opts *engine.QueueOptions) *problem {
	names := []string{c.queue()}
	if opts != nil {
		for i := range opts.Priorities + opts.Partitions {
			names = append(names, c.queue()+"/"+strconv.Itoa(i)) // as package queue names the shards
		}
	}
	for _, name := range names {
		if why := (need{"admin", auth.Stream, name}).denied(c.ctx, c.caller); why != nil {
			return why
		}
	}
	return nil
}

func (c *call) queueStats() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	stats, err := query(c.ctx, c, func() (engine.QueueStats, error) { return admin.Stats(c.ctx, c.queue()) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.answer(stats)
}

func (c *call) dropQueue() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	if err := admin.Drop(c.ctx, c.queue()); err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.acted(actDropQueue, c.queue())
	c.answer(map[string]any{"queue": c.queue()})
}

func (c *call) enqueue() {
	store := c.api.server.cfg.Engine.Queues
	if !c.served(store != nil) {
		return
	}
	messages, ok := c.messages(wire.Requests["enqueue"])
	if !ok {
		return
	}
	opts, why := c.body.enqueueOptions(c.caller)
	var id *engine.RequestID
	if why == nil {
		id, why = c.requestID()
	}
	if why != nil {
		c.refuseFor(why)
		return
	}
	c.store(messages, func(done func(engine.Place, error)) error {
		return store.Enqueue(c.ctx, c.queue(), id, messages, opts, done)
	})
}

// receive leases messages for the client, which settles them by other requests
// or lets the leases expire.
func (c *call) receive() {
	if !c.served(c.api.server.cfg.Engine.Queues != nil) {
		return
	}
	limit, ok := c.number("max", 1, maxReceive, 1)
	if !ok {
		return
	}
	wait, ok := c.number("wait_ms", 0, maxWait.Milliseconds(), 0)
	if !ok {
		return
	}
	// A client that has gone while it waited is leased nothing.
	defer context.AfterFunc(c.r.Context(), c.cancel)()
	if !c.reserve(budget.Page, pageReserve) {
		return
	}
	d := c.api.consumers.use(c.pullKey())
	defer c.api.consumers.release(d)
	ds, tokens, err := c.lease(d, int(limit), max(minWait, time.Duration(wait)*time.Millisecond))
	switch {
	case errors.Is(err, errTooManyLeases):
		c.refuse(codeTooManyLeases)
		return
	case err != nil:
		c.fail(err, codeUnavailable)
		return
	}
	c.api.server.sessions.delivered.Add(uint64(len(ds)))
	bytes := 0
	for i := range ds {
		bytes += messageBytes(&ds[i].Message)
	}
	c.memory.Take(budget.Page, int64(bytes))
	w := wire.Writer{Buf: make([]byte, 0, bytes)}
	w.Open()
	w.Name("deliveries")
	w.OpenList()
	for i := range ds {
		w.Next()
		writeDelivery(&w, false, c.queue(), tokens[i], &ds[i])
	}
	w.CloseList()
	w.Close()
	c.write(w.Buf)
}

// lease waits for messages. Messages that come after the client has gone, or after its right has ended, are
// released.
func (c *call) lease(d *pullConsumer, limit int, wait time.Duration) ([]engine.Delivery, []string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, wait)
	defer cancel()
	defer context.AfterFunc(c.api.polls, cancel)()
	ds, tokens, err := c.leaseWhileAllowed(ctx, d, limit)
	if err != nil {
		return nil, nil, err
	}
	if err = c.ctx.Err(); err == nil {
		err = c.permitted()
	}
	if err == nil {
		return ds, tokens, nil
	}
	back := settlement{kind: "nack"}
	taken, _ := d.leases.take(back, tokens)
	d.leases.settle(c.api.server.work, c.api.server.cfg.Engine.Queues, back, taken)
	return nil, nil, err
}

// leaseWhileAllowed waits for messages. When the rights of somebody change, or the token ends, the wait is interrupted before anything is
// leased, and the rights are looked at.
func (c *call) leaseWhileAllowed(ctx context.Context, d *pullConsumer, limit int) ([]engine.Delivery, []string, error) {
	for {
		changed := c.api.server.changes.next()
		if err := c.permitted(); err != nil {
			return nil, nil, err
		}
		wait, end := c.untilChanged(ctx, changed)
		ds, tokens, err := d.receive(c.ctx, c, wait, limit)
		end()
		if len(ds) > 0 || err != nil || ctx.Err() != nil {
			return ds, tokens, err
		}
	}
}

// untilChanged returns a context that ends with ctx, with the token of the caller, and when changed is closed.
func (c *call) untilChanged(ctx context.Context, changed <-chan struct{}) (context.Context, func()) {
	if c.caller == nil {
		return ctx, func() {}
	}
	wait, cancel := context.WithCancel(ctx)
	if !c.caller.Expires.IsZero() {
		wait, cancel = context.WithDeadline(ctx, c.caller.Expires)
	}
	go func() {
		select {
		case <-changed:
			cancel()
		case <-wait.Done():
		}
	}()
	return wait, cancel
}

// settle settles deliveries of earlier receives.
func (c *call) settle(kind string) {
	if !c.served(c.api.server.cfg.Engine.Queues != nil) || !c.readJSON(false, wire.Requests[kind]) {
		return
	}
	how, why := c.body.settlement(kind)
	tokens, whyTokens := c.body.tokens()
	if why == nil {
		why = whyTokens
	}
	if why != nil {
		c.refuseFor(why)
		return
	}
	got := c.api.settleAnywhere(c.ctx, c.pullKey(), how, tokens)
	answer := settledReply(got.Lost, got.Failed, got.Done)
	if answer.Code != "" {
		answer.Count = got.Done
		writeError(c.w, answer)
		return
	}
	c.answer(reply{Count: got.Done})
}

// settleHere settles deliveries that this server has given out.
func (a *api) settleHere(ctx context.Context, key pullKey, how settlement, tokens []string) settled {
	d := a.consumers.use(key)
	defer a.consumers.release(d)
	taken, lost := d.leases.take(how, tokens)
	gone, failed, err := d.leases.settle(ctx, a.server.cfg.Engine.Queues, how, taken)
	if err != nil {
		a.server.sessions.log.warn("deliveries not settled", "queue", key.queue, "type", how.kind, "error", err)
	}
	done := len(taken) - len(gone) - len(failed)
	a.server.sessions.settled.Add(uint64(done))
	return settled{Done: done, Lost: append(lost, gone...), Failed: failed}
}
