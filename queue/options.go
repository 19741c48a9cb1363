package queue

import (
	"fmt"
	"strings"
	"time"
)

const (
	// MaxPriorities is the maximum number of priorities of a queue.
	MaxPriorities = 10
	// MaxPartitions is the maximum number of partitions of a queue.
	MaxPartitions = 64
	// MaxAttempts is the highest Options.MaxAttempts.
	MaxAttempts = 1 << 20
	// MaxRetry is the longest pause of Options.
	MaxRetry = 365 * 24 * time.Hour
)

// Options of a queue, chosen when it is made.
type Options struct {
	// MaxAttempts is how many attempts are made before a message becomes a dead
	// letter, at most 1,048,576 (the constant MaxAttempts); what an attempt is, the package says. Defaults to 10.
	MaxAttempts int
	// RetryMin is the pause after the first nack. It doubles with each further
	// one (exponential back-off), and a random half is taken off. Defaults to 1
	// s.
	RetryMin time.Duration
	// RetryMax bounds that pause; it is at least RetryMin, and at most MaxRetry. Defaults to 5 min.
	RetryMax time.Duration
	// Priorities, 2 to MaxPriorities, gives messages a priority from 0 to one
	// less; the higher goes first. While there are enough messages of a priority,
	// nothing lower is delivered: lower priorities may starve. Defaults to none.
	Priorities int
	// Partitions, 1 to MaxPartitions, delivers the messages of each key in order: the
	// next one when the one before was acknowledged or became a dead letter. Each key
	// belongs to a partition, and each partition to one node at a time, so at most this
	// many nodes can share the work. Messages without a key have no order. Not with
	// Priorities. Defaults to none: there is no order of keys.
	Partitions int
}

func (o Options) withDefaults() Options {
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 10
	}
	if o.RetryMin <= 0 {
		o.RetryMin = time.Second
	}
	if o.RetryMax <= 0 {
		o.RetryMax = 5 * time.Minute
	}
	// PostgreSQL's resolution of an interval, so that options compare as equal.
	o.RetryMin = o.RetryMin.Round(time.Microsecond)
	o.RetryMax = max(o.RetryMax.Round(time.Microsecond), o.RetryMin)
	return o
}

func (o Options) validate() error {
	switch {
	case o.Priorities != 0 && (o.Priorities < 2 || o.Priorities > MaxPriorities):
		return fmt.Errorf("%w priorities: %d, want 2 to %d, or 0 for none", ErrInvalid, o.Priorities, MaxPriorities)
	case o.Partitions < 0 || o.Partitions > MaxPartitions:
		return fmt.Errorf("%w partitions: %d, want 1 to %d, or 0 for none", ErrInvalid, o.Partitions, MaxPartitions)
	case o.MaxAttempts > MaxAttempts:
		return fmt.Errorf("%w attempts: %d, want at most %d", ErrInvalid, o.MaxAttempts, MaxAttempts)
	case o.RetryMax > MaxRetry:
		return fmt.Errorf("%w retry pause: %v, want at most %v", ErrInvalid, o.RetryMax, MaxRetry)
	case o.Priorities > 0 && o.Partitions > 0:
		return fmt.Errorf("%w options: priorities and partitions exclude each other", ErrInvalid)
	}
	return nil
}

// family reports whether the queue has priorities or partitions, and so consists of shards.
func (o Options) family() bool { return o.Priorities+o.Partitions > 0 }

// differ returns ErrExists with the differences from the requested options, or nil.
func (o Options) differ(asked Options) error {
	if o == asked {
		return nil
	}
	var has, wants []string
	own, others := o.words(), asked.words()
	for i := range own {
		if own[i] != others[i] {
			has, wants = append(has, own[i]), append(wants, others[i])
		}
	}
	return fmt.Errorf("%w: the queue has %s; you asked for %s", ErrExists, strings.Join(has, ", "), strings.Join(wants, ", "))
}

// words describes each option in words, always in the same order.
func (o Options) words() []string {
	count := func(n int, one, many string) string {
		switch n {
		case 0:
			return "no " + many
		case 1:
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, many)
	}
	return []string{
		count(o.Partitions, "partition", "partitions"), count(o.Priorities, "priority", "priorities"), count(o.MaxAttempts, "attempt", "attempts"),
		fmt.Sprintf("a first retry pause of %v", o.RetryMin), fmt.Sprintf("a longest retry pause of %v", o.RetryMax),
	}
}
