package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// consumer is a consumption of a connection. Its goroutine leases messages and
// sends them, as long as the client has fewer unsettled messages than credits.
type consumer struct {
	session *session
	queue   string
	began   time.Time
	// encoding is that of the request.
	encoding wire.Encoding
	opts     engine.ConsumeOptions
	leases   *leases
	ctx      context.Context
	cancel   context.CancelFunc
	end      ending
	revoked  atomic.Pointer[problem] // why the client may not have it any more

	settling pending       // requests that are settling deliveries
	changed  chan struct{} // one slot: the client may take more

	mu        sync.Mutex
	credits   int64
	planned   int64              // credits on which the current Receive is based
	interrupt context.CancelFunc // ends a wait for messages, if there is one
}

func newConsumer(s *session, queue string, e wire.Encoding, credits int64, opts engine.ConsumeOptions) *consumer {
	c := &consumer{session: s, queue: queue, began: time.Now(), encoding: e, opts: opts, leases: newLeases("", s.conn.memory), changed: make(chan struct{}, 1), credits: credits}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// revoke ends the consumption because its client may not have it any more. Its deliveries go back.
func (c *consumer) revoke(why *problem) {
	c.revoked.Store(why)
	c.cancel()
}

// run is the consumption's goroutine.
func (c *consumer) run(by asked) {
	defer c.cancel()
	defer c.leave() // also after a panic
	s := c.session
	var source engine.Consumption
	err := s.conn.memory.Reserve(c.ctx, budget.Follow, followOverhead)
	if err == nil {
		defer s.conn.memory.Release(budget.Follow, followOverhead)
		source, err = query(c.ctx, s.conn.socket, func() (engine.Consumption, error) { return s.server.queues.Consume(c.ctx, c.queue, c.opts) })
	}
	if err != nil {
		c.leave()
		if c.ctx.Err() != nil {
			s.answer(by, refusal(codeEnded))
		} else {
			s.fail(by, err, codeUnavailable)
		}
	} else {
		err = s.conn.try(func() error {
			if err := s.pushStart(c.ctx, by, reply{}); err != nil {
				return err
			}
			return c.deliver(source)
		})
		c.leave()
		c.settling.wait(s.server.work)
		if c.end.begun() {
			source.Close()
		} else {
			source.Lost()
		}
		c.leases.forget()
		c.tell(err)
	}
	c.end.answer(s)
	s.server.flusher.later(s.conn)
}

// leave removes the consumption. The client may begin another one then.
func (c *consumer) leave() {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if c.session.consumers[c.queue] == c {
		delete(c.session.consumers, c.queue)
	}
	c.session.server.consuming.remove(c)
}

// tell tells the client that the server has ended the consumption.
func (c *consumer) tell(err error) {
	if why := c.revoked.Load(); why != nil {
		with := why.reply()
		with.Queue = c.queue
		c.session.pushEnd(with, c.encoding)
		return
	}
	if c.ctx.Err() != nil || c.session.conn.ending() {
		return
	}
	why := codeOf(err, codeUnavailable)
	switch why {
	case engine.CodeNotFound:
		why = codeQueueGone
	case codeUnavailable:
		c.session.server.log.warn("consumption ended", "queue", c.queue, "error", err)
	}
	with := refusal(why)
	with.Queue = c.queue
	c.session.pushEnd(with, c.encoding)
}

// deliver leases messages and sends them until an error ends it.
func (c *consumer) deliver(source engine.Consumption) error {
	for {
		n, err := c.room(source)
		if err != nil {
			return err
		}
		if err := c.session.conn.admit(c.ctx); err != nil {
			return err
		}
		ds, err := c.receive(source, n)
		if errors.Is(err, context.Canceled) && c.ctx.Err() == nil {
			continue // the credits have changed
		}
		if err != nil {
			return err
		}
		// A client may acknowledge as soon as it has read.
		if err := c.send(ds, c.leases.put(ds)); err != nil {
			return err
		}
	}
}

// receive waits for messages. It is interrupted when the client reduces its
// credits.
func (c *consumer) receive(source engine.Consumption, n int) ([]engine.Delivery, error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	c.mu.Lock()
	c.interrupt = cancel
	if c.credits < c.planned {
		cancel()
	}
	c.mu.Unlock()
	ds, err := source.Receive(ctx, n)
	c.mu.Lock()
	c.interrupt = nil
	c.mu.Unlock()
	return ds, err
}

// room waits until the client may have more messages, and returns how many: its
// credits minus its unsettled deliveries whose lease has not expired, and no more than their bytes permit. It tells
// the source each change of the credits.
func (c *consumer) room(source engine.Consumption) (int, error) {
	for {
		now := time.Now()
		held, next := c.leases.count(now)
		c.mu.Lock()
		c.planned = c.credits
		credits := int(c.credits)
		c.mu.Unlock()
		source.SetCredits(credits)
		if n := min(credits-held, c.leases.fits(c.session.server.mostUnsettled)); n > 0 {
			return n, nil
		}
		select {
		case <-source.Broken():
			return 1, nil // Receive returns the reason, and leases none
		default:
		}
		var ends <-chan time.Time
		if held > 0 {
			ends = time.After(next.Sub(now))
		}
		select {
		case <-c.changed:
		case <-source.Broken():
		case <-ends:
		case <-c.ctx.Done():
			return 0, c.ctx.Err()
		}
	}
}

// grant changes the credits by n. It returns false if the result is out of
// range.
func (c *consumer) grant(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < -maxPrefetch || n > maxPrefetch || c.credits+n < 0 || c.credits+n > maxPrefetch {
		return false
	}
	c.credits += n
	if n < 0 && c.interrupt != nil {
		c.interrupt()
	}
	signal(c.changed)
	return true
}

// send sends deliveries on the bulk lane, about pushFrames bytes at a time.
func (c *consumer) send(ds []engine.Delivery, tokens []string) error {
	server, memory := c.session.server, c.session.conn.memory
	held := 0
	for i := range ds {
		held += messageBytes(&ds[i].Message)
	}
	held += encodedBytes(held, len(ds))
	memory.Take(budget.Page, int64(held))
	defer memory.Release(budget.Page, int64(held))
	w, frames, with := server.writer(c.encoding), server.buffer(), c.session.conn.compression()
	defer func() { server.reuse(w); server.reuseBuffer(frames) }()
	for i := range ds {
		w.Buf = w.Buf[:0]
		writeDelivery(w, true, c.queue, tokens[i], &ds[i])
		*frames = with.AppendFrame(*frames, opcode(c.encoding), w.Buf)
		if len(*frames) < pushFrames && i < len(ds)-1 {
			continue
		}
		if err := c.session.push(c.ctx, *frames); err != nil {
			return err
		}
		*frames = (*frames)[:0]
	}
	server.delivered.Add(uint64(len(ds)))
	return nil
}
