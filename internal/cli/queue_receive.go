package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

type queueReceiveCmd struct {
	Name string  `arg:"" help:"The queue."`
	Max  int     `short:"n" default:"1" placeholder:"N" help:"Exit after N messages. 0: never."`
	Wait seconds `default:"10s" placeholder:"TIME" help:"Exit when no message has come for this time. 0: never."`
	Ack  bool    `default:"true" negatable:"" help:"Acknowledge the messages once they are printed. With --no-ack they go back to the queue when the command ends, which counts as an attempt."`
	printFlags
	databaseFlags
}

// Run is called by kong.
func (c *queueReceiveCmd) Run(p *process) error {
	if c.Max < 0 {
		return exit(ExitUsage, "--max is %d: want 0 or more", c.Max)
	}
	if c.Max == 0 && !c.Ack {
		return exit(ExitUsage, "--no-ack needs --max: the command holds all messages until it ends")
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		client, err := queue.Open(p.ctx, pool, queue.Config{Log: p.log})
		if err != nil {
			return explainQueue(err)
		}
		q, err := client.Lookup(p.ctx, c.Name)
		if err == nil {
			err = c.receive(p, q)
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), receiveClose)
		defer cancel()
		return explainQueue(errors.Join(err, client.Close(closing)))
	})
}

const (
	// receiveCredits is the largest number of messages that receive holds at a time.
	receiveCredits = 100
	// receiveVisibility is longer than the output can block, in most cases: then the messages are delivered again.
	receiveVisibility = 24 * time.Hour
	// receiveClose bounds the release of what was received and not acknowledged.
	receiveClose = 30 * time.Second
)

// deliveryLine is a delivery as a line of JSON.
type deliveryLine struct {
	messageLine
	Priority int `json:"priority,omitempty"`
	Attempt  int `json:"attempt"`
}

// receive prints and acknowledges messages until there were enough, or none has come for long enough.
func (c *queueReceiveCmd) receive(p *process, q *queue.Queue) error {
	left := c.Max
	consumer, err := q.Consume(queue.ConsumerOptions{Credits: c.credits(left), Visibility: receiveVisibility})
	if err != nil {
		return err
	}
	defer consumer.Close()
	out := c.printer(p)
	for c.Max == 0 || left > 0 {
		ds, err := c.next(p.ctx, consumer, left)
		if len(ds) == 0 || err != nil {
			return err
		}
		if err := c.print(out, ds); err != nil {
			return err
		}
		left -= len(ds)
		if !c.Ack {
			continue // the consumer keeps them, and their credits
		}
		consumer.SetCredits(c.credits(left))
		if err := errors.Join(queue.AckAll(context.WithoutCancel(p.ctx), ds)...); err != nil {
			return fmt.Errorf("acknowledge: %w", err)
		}
	}
	return nil
}

// credits is how many messages may be held if so many are left to be printed.
func (c *queueReceiveCmd) credits(left int) int {
	switch {
	case c.Max == 0:
		return receiveCredits
	case c.Ack:
		return max(1, min(left, receiveCredits))
	}
	return left // they are held until the end
}

// next returns the next deliveries; none if none has come for long enough, or the user ends the command.
func (c *queueReceiveCmd) next(ctx context.Context, consumer *queue.Consumer, left int) ([]*queue.Delivery, error) {
	if c.Max == 0 {
		left = receiveCredits
	}
	waiting := ctx
	if c.Wait > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, time.Duration(c.Wait))
		defer cancel()
	}
	ds, err := consumer.ReceiveUpTo(waiting, left)
	if err != nil && waiting.Err() != nil {
		return nil, nil
	}
	return ds, err
}

func (c *queueReceiveCmd) print(out *printer, ds []*queue.Delivery) error {
	for _, d := range ds {
		if c.Raw {
			if err := out.page([]stream.Message{d.Message}); err != nil {
				return err
			}
			continue
		}
		if err := out.encoder.Encode(deliveryLine{newMessageLine(&d.Message), d.Priority, d.Attempt}); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if err := out.out.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
