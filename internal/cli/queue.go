package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidewire/tidewire/queue"
)

// queueCmd has the commands for queues, for people and scripts.
type queueCmd struct {
	Create    queueCreateCmd    `cmd:"" help:"Create a queue."`
	Alter     queueAlterCmd     `cmd:"" help:"Change the options of a queue. Running servers take them within seconds."`
	List      queueListCmd      `cmd:"" help:"List the queues, with the number of messages in each."`
	Stats     queueStatsCmd     `cmd:"" help:"Show how many messages a queue has, and how many are enqueued and done a second."`
	Enqueue   queueEnqueueCmd   `cmd:"" help:"Enqueue messages: one for each argument, or for each line of the standard input."`
	Receive   queueReceiveCmd   `cmd:"" help:"Take messages from the queue, print them and acknowledge them."`
	Peek      queuePeekCmd      `cmd:"" help:"Print the next messages, or the dead letters. They stay in the queue."`
	Redrive   queueRedriveCmd   `cmd:"" help:"Put dead letters back into the queue."`
	PurgeDead queuePurgeDeadCmd `cmd:"" help:"Remove dead letters."`
	Pause     queuePauseCmd     `cmd:"" help:"Stop deliveries until resume. Messages can still be enqueued."`
	Resume    queueResumeCmd    `cmd:"" help:"Start deliveries again, after pause."`
	Purge     queuePurgeCmd     `cmd:"" help:"Remove all messages, except those that a consumer is processing."`
	Drop      queueDropCmd      `cmd:"" help:"Remove a queue with all its messages."`
}

// queueArg names a queue.
type queueArg struct {
	Name string `arg:"" help:"The queue."`
	databaseFlags
}

// with runs work on the queue.
func (a queueArg) with(p *process, work func(q *queue.Queue) error) error {
	return a.withPool(p, func(pool *pgxpool.Pool) error {
		q, err := queue.Lookup(p.ctx, pool, a.Name)
		if err == nil {
			err = work(q)
		}
		return explainQueue(err)
	})
}

type queueCreateCmd struct {
	Name        string  `arg:"" help:"Name of the queue."`
	MaxAttempts int     `placeholder:"N" help:"How many times a message is delivered before it becomes a dead letter. Default: 10."`
	RetryMin    seconds `placeholder:"TIME" help:"Pause before the first retry of a message that a consumer rejected (nack). The pause doubles with each retry. Default: 1s."`
	RetryMax    seconds `placeholder:"TIME" help:"Longest pause before a retry. Default: 5m."`
	Priorities  int     `placeholder:"N" help:"Give messages a priority from 0 to N-1 (N is 2 to 10). Higher priorities are delivered first. Default: no priorities."`
	Partitions  int     `placeholder:"N" help:"Deliver the messages of each key in order. The keys are divided among N partitions (1 to 64), and up to N servers share the work. Default: no order."`
	databaseFlags
}

// Run is called by kong.
func (c *queueCreateCmd) Run(p *process) error {
	if c.MaxAttempts < 0 {
		return exit(ExitUsage, "--max-attempts is %d: want at least 1", c.MaxAttempts)
	}
	if err := refuseReserved("queue", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		_, err := queue.Ensure(p.ctx, pool, c.Name, queue.Options{
			MaxAttempts: c.MaxAttempts, RetryMin: time.Duration(c.RetryMin), RetryMax: time.Duration(c.RetryMax),
			Priorities: c.Priorities, Partitions: c.Partitions,
		})
		return explainQueue(err)
	})
}

type queueAlterCmd struct {
	queueArg
	MaxAttempts int     `placeholder:"N" help:"How many times a message is delivered before it becomes a dead letter."`
	RetryMin    seconds `placeholder:"TIME" help:"Pause before the first retry of a message that a consumer rejected (nack)."`
	RetryMax    seconds `placeholder:"TIME" help:"Longest pause before a retry."`
}

// Run is called by kong.
func (c *queueAlterCmd) Run(p *process) error {
	changes := queue.Changes{MaxAttempts: c.MaxAttempts, RetryMin: time.Duration(c.RetryMin), RetryMax: time.Duration(c.RetryMax)}
	if changes == (queue.Changes{}) {
		return exit(ExitUsage, "queue alter needs --max-attempts, --retry-min or --retry-max")
	}
	return c.with(p, func(q *queue.Queue) error {
		o, err := q.Alter(p.ctx, changes)
		if err == nil {
			fmt.Fprintf(p.Out, "max attempts: %d\nretry min: %v\nretry max: %v\n", o.MaxAttempts, o.RetryMin, o.RetryMax)
		}
		return err
	})
}

type queueListCmd struct{ databaseFlags }

// Run is called by kong.
func (c *queueListCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		names, err := queue.List(p.ctx, pool)
		if err != nil {
			return explainQueue(err)
		}
		t := plainTable("queue", "ready", "leased", "delayed", "dead", "oldest", "nodes")
		rightAligned(t, 2, 3, 4, 5, 6, 7)
		for _, name := range names {
			s, err := stats(p, pool, name)
			if errors.Is(err, queue.ErrNotFound) { // dropped since it was listed
				continue
			}
			if err != nil {
				return explainQueue(err)
			}
			t.AppendRow(table.Row{name, s.Ready, s.Leased, s.Delayed, s.Dead, s.OldestAge.Round(time.Second), s.Nodes})
		}
		fmt.Fprintln(p.Out, t.Render())
		return nil
	})
}

func stats(p *process, pool *pgxpool.Pool, name string) (queue.Stats, error) {
	q, err := queue.Lookup(p.ctx, pool, name)
	if err != nil {
		return queue.Stats{}, err
	}
	return q.Stats(p.ctx)
}

type queueStatsCmd struct {
	queueArg
	Over time.Duration `default:"1s" help:"How long to measure the messages a second. 0: do not measure."`
}

// Run is called by kong.
func (c *queueStatsCmd) Run(p *process) error {
	return c.with(p, func(q *queue.Queue) error {
		s, err := q.Stats(p.ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.Out, "queue: %s\nready: %d\nleased: %d\ndelayed: %d\ndead: %d\noldest: %v\nnodes: %d\npaused: %s\nlast position: %d\n",
			q.Name(), s.Ready, s.Leased, s.Delayed, s.Dead, s.OldestAge.Round(time.Second), s.Nodes, yesNo(s.Paused), s.Head)
		return c.rates(p, q, s)
	})
}

// rates measures and prints how many messages are enqueued and done a second, from the first Stats
// on.
func (c *queueStatsCmd) rates(p *process, q *queue.Queue, first queue.Stats) error {
	if c.Over <= 0 {
		return nil
	}
	began := time.Now()
	select {
	case <-time.After(c.Over):
	case <-p.ctx.Done():
		return nil
	}
	s, err := q.Stats(p.ctx)
	if err == nil {
		came, done := s.RatesSince(first, time.Since(began))
		fmt.Fprintf(p.Out, "enqueued: %.0f/s\ndone: %.0f/s\n", came, done)
	}
	return err
}

type queuePeekCmd struct {
	queueArg
	Count int  `short:"n" default:"10" help:"Maximum number of messages to print."`
	Dead  bool `help:"Print dead letters, each with its attempts and the reason of its last rejection (nack)."`
	deadFlags
	printFlags
}

// Run is called by kong.
func (c *queuePeekCmd) Run(p *process) error {
	if c.Count < 1 {
		return exit(ExitUsage, "--count is %d: want at least 1", c.Count)
	}
	if !c.Dead && c.deadFlags != (deadFlags{}) {
		return exit(ExitUsage, "--key, --reason, --min-attempts, --since and --before select dead letters: they need --dead")
	}
	return c.with(p, func(q *queue.Queue) error {
		out := c.printer(p)
		if c.Dead {
			return c.printDead(p, q, out)
		}
		messages, err := q.Peek(p.ctx, c.Count)
		if err != nil {
			return err
		}
		return out.page(messages)
	})
}

type queuePauseCmd struct{ queueArg }

// Run is called by kong.
func (c *queuePauseCmd) Run(p *process) error {
	return c.with(p, func(q *queue.Queue) error { return q.Pause(p.ctx) })
}

type queueResumeCmd struct{ queueArg }

// Run is called by kong.
func (c *queueResumeCmd) Run(p *process) error {
	return c.with(p, func(q *queue.Queue) error { return q.Resume(p.ctx) })
}

type queuePurgeCmd struct {
	queueArg
	Dead bool `help:"Remove dead letters too."`
	Yes  bool `help:"Confirm. This cannot be undone."`
}

// Run is called by kong.
func (c *queuePurgeCmd) Run(p *process) error {
	if !c.Yes {
		return exit(ExitUsage, "queue purge removes the messages of %q permanently: confirm with --yes", c.Name)
	}
	return c.with(p, func(q *queue.Queue) error {
		n, err := q.Purge(p.ctx, queue.PurgeOptions{Dead: c.Dead})
		if err == nil {
			fmt.Fprintf(p.Out, "purged %d\n", n)
		}
		return err
	})
}

type queueDropCmd struct {
	Name string `arg:"" help:"The queue."`
	Yes  bool   `help:"Confirm. This cannot be undone."`
	databaseFlags
}

// Run is called by kong.
func (c *queueDropCmd) Run(p *process) error {
	if !c.Yes {
		return exit(ExitUsage, "queue drop removes %q and all its messages permanently: confirm with --yes", c.Name)
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error { return explainQueue(queue.Drop(p.ctx, pool, c.Name)) })
}

// explainQueue adds to an error of package queue what to do about it.
func explainQueue(err error) error {
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return exit(ExitFailure, "%w; tidewire queue list shows what there is", err)
	case errors.Is(err, queue.ErrExists):
		return exit(ExitUsage, "%w: drop it first, change it with tidewire queue alter, or give the options that it has; a flag that is left out means its default", err)
	case errors.Is(err, queue.ErrStreamInUse):
		return exit(ExitUsage, "%w: %s; choose another name, or drop the stream first with tidewire stream drop", queue.ErrStreamInUse, reason(err))
	case errors.Is(err, queue.ErrInvalid):
		return exit(ExitUsage, "%w", err)
	}
	return explainStream(err)
}

// reason returns the message of an error from PostgreSQL, without its SQLSTATE.
func reason(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Message
	}
	return err.Error()
}
