package cli

import (
	"fmt"
	"time"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// deadFlags select dead letters.
type deadFlags struct {
	Key         string  `help:"Only the dead letters with this key."`
	Reason      string  `placeholder:"TEXT" help:"Only those whose reason contains this text, in upper or lower case."`
	MinAttempts int     `placeholder:"N" help:"Only those with at least N attempts."`
	Since       seconds `placeholder:"TIME" help:"Only those that died at most this long ago, such as 1h."`
	Before      seconds `placeholder:"TIME" help:"Only those that died longer ago than this."`
}

func (f deadFlags) filter() queue.DeadFilter {
	filter := queue.DeadFilter{Key: f.Key, Reason: f.Reason, MinAttempts: f.MinAttempts}
	now := time.Now()
	if f.Since > 0 {
		filter.Since = now.Add(-time.Duration(f.Since))
	}
	if f.Before > 0 {
		filter.Before = now.Add(-time.Duration(f.Before))
	}
	return filter
}

// deadLine is a dead letter as a line of JSON.
type deadLine struct {
	messageLine
	Attempts int       `json:"attempts"`
	Reason   string    `json:"reason,omitempty"`
	Died     time.Time `json:"died"`
}

// deadPageBytes is about how many bytes of dead letters printDead holds.
const deadPageBytes = 4 << 20

// printDead prints the first dead letters that the flags select.
func (c *queuePeekCmd) printDead(p *process, q *queue.Queue, out *printer) error {
	filter := c.filter()
	for after, left := int64(0), c.Count; left > 0; {
		page, err := q.FindDead(p.ctx, filter, after, min(left, queue.MaxDeadStep), deadPageBytes)
		if err != nil {
			return err
		}
		for i := range page.Letters {
			d := &page.Letters[i]
			if c.Raw {
				err = out.page([]stream.Message{d.Message})
			} else {
				err = out.encoder.Encode(deadLine{newMessageLine(&d.Message), d.Attempts, d.Reason, d.Died})
			}
			if err != nil {
				return err
			}
		}
		if after, left = page.Next, left-len(page.Letters); after == 0 {
			break
		}
	}
	return out.out.Flush()
}

type queueRedriveCmd struct {
	queueArg
	Position []int64 `placeholder:"N" help:"Only the dead letters at these positions. Default: all dead letters."`
	deadFlags
}

// Run is called by kong.
func (c *queueRedriveCmd) Run(p *process) error {
	if err := c.alone(c.Position); err != nil {
		return err
	}
	return c.with(p, func(q *queue.Queue) (err error) {
		var n int64
		if len(c.Position) > 0 {
			n, err = q.Redrive(p.ctx, c.Position...)
		} else {
			n, err = inSteps(func(after int64) (queue.DeadStep, error) {
				return q.RedriveStep(p.ctx, c.filter(), after, queue.MaxDeadStep)
			})
		}
		fmt.Fprintf(p.Out, "redriven %d\n", n)
		return err
	})
}

// alone rejects positions together with a filter.
func (f deadFlags) alone(positions []int64) error {
	if len(positions) > 0 && f != (deadFlags{}) {
		return exit(ExitUsage, "--position names dead letters: leave out --key, --reason, --min-attempts, --since and --before")
	}
	return nil
}

// inSteps takes steps until there are no more dead letters, and returns how many were changed, also with an error.
func inSteps(step func(after int64) (queue.DeadStep, error)) (changed int64, err error) {
	for after := int64(0); ; {
		done, err := step(after)
		changed += done.Changed
		if after = done.Next; err != nil || after == 0 {
			return changed, err
		}
	}
}

type queuePurgeDeadCmd struct {
	queueArg
	Position []int64 `placeholder:"N" help:"Only the dead letters at these positions. Default: all dead letters."`
	deadFlags
	Yes bool `help:"Confirm. This cannot be undone."`
}

// Run is called by kong.
func (c *queuePurgeDeadCmd) Run(p *process) error {
	if !c.Yes {
		return exit(ExitUsage, "queue purge-dead removes dead letters of %q permanently: confirm with --yes", c.Name)
	}
	if err := c.alone(c.Position); err != nil {
		return err
	}
	return c.with(p, func(q *queue.Queue) (err error) {
		var n int64
		if len(c.Position) > 0 {
			n, err = q.PurgeDead(p.ctx, c.Position...)
		} else {
			n, err = inSteps(func(after int64) (queue.DeadStep, error) {
				return q.PurgeStep(p.ctx, c.filter(), after, queue.MaxDeadStep)
			})
		}
		fmt.Fprintf(p.Out, "purged %d\n", n)
		return err
	})
}
