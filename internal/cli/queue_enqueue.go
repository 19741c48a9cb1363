package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

type queueEnqueueCmd struct {
	Name         string            `arg:"" help:"The queue."`
	Text         []string          `arg:"" optional:"" help:"Payloads of the messages. Default: the lines of the standard input."`
	Key          string            `help:"Key of the messages."`
	Header       map[string]string `placeholder:"NAME=VALUE" help:"A header. Give the flag again for more headers."`
	Delay        seconds           `placeholder:"TIME" help:"Deliver the messages after this time at the earliest. Default: at once."`
	Priority     int               `placeholder:"N" help:"Priority of the messages, for a queue with priorities: 0 is the lowest. Default: 0."`
	UniqueKey    string            `placeholder:"KEY" help:"Enqueue the message only if none with this key was enqueued in the current period. Needs one payload as an argument."`
	UniquePeriod seconds           `default:"10m" placeholder:"TIME" help:"Length of a period for --unique-key, 1s to 10m. Periods begin at multiples of their length."`
	databaseFlags
}

// Run is called by kong.
func (c *queueEnqueueCmd) Run(p *process) error {
	if c.UniqueKey != "" && len(c.Text) != 1 {
		return exit(ExitUsage, "--unique-key needs one payload as an argument: others with the same key would be duplicates of it")
	}
	if err := refuseReserved("queue", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		q, err := queue.Lookup(p.ctx, pool, c.Name)
		if err == nil {
			err = c.enqueue(p, pool, q)
		}
		return explainQueue(err)
	})
}

// enqueued counts the committed messages, and keeps the first error.
type enqueued struct {
	mu          sync.Mutex
	stored      int
	last        int64 // highest position
	duplicateOf int64 // 0: none
	err         error
}

func (r *enqueued) done(at queue.Enqueued, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if duplicate, ok := errors.AsType[*queue.DuplicateError](err); ok {
		r.duplicateOf = duplicate.Position
		return
	}
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return
	}
	r.stored++
	r.last = max(r.last, at.Last)
}

func (r *enqueued) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// enqueue enqueues the messages, and prints at the end how many are committed.
func (c *queueEnqueueCmd) enqueue(p *process, pool *pgxpool.Pool, q *queue.Queue) error {
	hub := stream.NewHub(pool, stream.HubConfig{Announce: true, Log: p.log})
	hubCtx, stopHub := context.WithCancel(context.WithoutCancel(p.ctx))
	var announcing sync.WaitGroup
	announcing.Go(func() { hub.Run(hubCtx) })
	e := queue.NewEnqueuer(q, queue.EnqueuerConfig{Appender: stream.AppenderConfig{Hub: hub, Writer: stream.WriterConfig{Log: p.log}}})
	e.Start()
	var result enqueued
	err := c.submit(p, e, &result)
	e.Stop() // accepted messages are written first
	stopHub()
	announcing.Wait()
	switch {
	case result.duplicateOf > 0:
		fmt.Fprintf(p.Out, "enqueued 0, duplicate of position %d\n", result.duplicateOf)
	case result.stored > 0:
		fmt.Fprintf(p.Out, "enqueued %d, last position %d\n", result.stored, result.last)
	default:
		fmt.Fprintln(p.Out, "enqueued 0")
	}
	return errors.Join(err, result.failed())
}

// submit passes the messages to the Enqueuer, until one fails.
func (c *queueEnqueueCmd) submit(p *process, e *queue.Enqueuer, result *enqueued) error {
	headers, err := headersOf(c.Header)
	if err != nil {
		return err
	}
	return payloads(p, c.Text, func(text []byte, _ int) error {
		if err := result.failed(); err != nil {
			return err
		}
		m := queue.Message{Key: c.Key, Headers: headers, Payload: text, Priority: c.Priority}
		if c.Delay > 0 {
			m.Due = time.Now().Add(time.Duration(c.Delay))
		}
		if c.UniqueKey != "" {
			m.Unique = queue.Unique{Key: c.UniqueKey, Period: time.Duration(c.UniquePeriod)}
		}
		return e.Submit(p.ctx, []queue.Message{m}, result.done)
	})
}
