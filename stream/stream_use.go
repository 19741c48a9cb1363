package stream

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"
)

// Append stores the messages, in this order and at consecutive positions, all or none of them, and returns their
// positions once they are committed. Callers share commits. While PostgreSQL is away it waits.
//
// In a stream with partitions the messages of a call go to the partition of their key, those without a key along with
// the others, or else to each partition in turn. If their keys belong to several, the error is ErrCrossPartition.
//
// Errors: ErrNotRunning for a Stream that is not a Client's, ErrClosed, ErrInvalid, ErrCrossPartition, ErrNotFound for
// a stream that was dropped, and PostgreSQL's own mean that nothing was stored. If ctx ends first, or with
// ErrOutcomeUnknown, the messages may be stored or not: AppendAs makes it safe to repeat.
func (s *Stream) Append(ctx context.Context, msgs ...Message) (Appended, error) {
	return s.do(func(a *PartitionedAppender) (Appended, error) { return a.Append(ctx, msgs...) })
}

// AppendAs is Append as the request of that name, which can be repeated: see Appender.AppendAs.
func (s *Stream) AppendAs(ctx context.Context, request RequestID, msgs ...Message) (Appended, error) {
	return s.do(func(a *PartitionedAppender) (Appended, error) { return a.AppendAs(ctx, request, msgs...) })
}

// Notify has subscriptions look for messages at once, in this process and in others: those of a transaction that has
// committed after AppendTx, which are found by a poll otherwise. It does nothing for a Stream that is not a Client's.
func (s *Stream) Notify() {
	if s.client != nil {
		s.client.hub.Notify(s)
	}
}

// Subscribe yields the messages from start on, first those there are and then those to come, in order and each once.
// The last turn of the loop has an error and no message: ctx's own, or one of Subscription.Next, or ErrNotRunning
// for a Stream that is not a Client's. A loop that is left, or takes its time, costs nothing.
func (s *Stream) Subscribe(ctx context.Context, start Start) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for page, err := range s.Pages(ctx, start) {
			if err != nil {
				yield(Message{}, err)
				return
			}
			for _, m := range page {
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

// Pages is Subscribe with all messages at a time that there are, up to HubConfig's bounds. They must not be changed.
func (s *Stream) Pages(ctx context.Context, start Start) iter.Seq2[[]Message, error] {
	return func(yield func([]Message, error) bool) {
		if s.client == nil {
			yield(nil, fmt.Errorf("subscribe to stream %q: %w", s.name, ErrNotRunning))
			return
		}
		sub, err := s.client.hub.Subscribe(ctx, s, start)
		yieldPages(ctx, sub, err, yield)
	}
}

// Pages yields the messages after the offset of the group as Stream.Pages does. Tell Commit, or
// CommitLater, what was dealt with: the position of the last message of a page.
func (g *Group) Pages(ctx context.Context) iter.Seq2[[]Message, error] {
	return func(yield func([]Message, error) bool) {
		c := g.stream.client
		if c == nil {
			yield(nil, fmt.Errorf("group %q of stream %q: %w", g.name, g.stream.name, ErrNotRunning))
			return
		}
		sub, err := g.Subscribe(ctx, c.hub)
		yieldPages(ctx, sub, err, yield)
	}
}

// yieldPages yields what a subscription returns, and err if there is none.
func yieldPages(ctx context.Context, sub *Subscription, err error, yield func([]Message, error) bool) {
	if err != nil {
		yield(nil, err)
		return
	}
	defer sub.Close()
	for {
		page, err := sub.Next(ctx)
		if !yield(page, err) || err != nil {
			return
		}
	}
}

// Group returns the stream's group of that name, and makes it if there is none: see Groups.Open. Its offset
// is committed until the Client is closed.
func (s *Stream) Group(ctx context.Context, name string, opts GroupOptions) (*Group, error) {
	if s.client == nil {
		return nil, fmt.Errorf("group %q of stream %q: %w", name, s.name, ErrNotRunning)
	}
	return s.client.groups.Open(ctx, s, name, opts)
}

// WorkOptions configures Stream.Work.
type WorkOptions struct {
	// Start is where the group begins if it is new. Defaults to the oldest message that is kept.
	Start Start
	// Name of this member of the group, for those who look. Defaults to a random name.
	Name string
	// Lease is for how long a process that says nothing keeps its partitions. Defaults to 15 s.
	Lease time.Duration
	// Log receives a line when the handler has failed. Defaults to the Client's.
	Log *slog.Logger
}

// Work has a handler deal with the messages of the stream as a member of the group of that name, until ctx ends. All processes
// that work in the group share the partitions; each message is given to one of them, in the order of its partition.
// An ordinary stream is one partition.
//
// The handler gets pages of messages, one at a time of each partition. When it returns nil, the offset of the group is
// committed soon; when it returns an error, it gets the same page again after a pause, of 10 ms first and 1 s at most.
// A page may come twice: at least once is what is promised. The handler's ctx ends if the partition is lost to another process.
//
// Work returns when the last handler has returned and the offsets are committed: nil after the end of ctx, else one of
// the errors of Member.Run, or ErrNotRunning for a Stream that is not a Client's.
func (s *Stream) Work(ctx context.Context, group string, opts WorkOptions, handle func(ctx context.Context, page []Message) error) error {
	c := s.client
	if c == nil {
		return fmt.Errorf("work on stream %q: %w", s.name, ErrNotRunning)
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return fmt.Errorf("work on stream %q: %w", s.name, err)
	}
	defer end()
	log := opts.Log
	if log == nil {
		log = c.cfg.Log
	}
	m, err := c.groups.Join(ctx, c.hub, s, group, MemberConfig{
		Name: opts.Name, Start: opts.Start, Lease: opts.Lease, Log: log,
		Handle: func(ctx context.Context, _ *Assignment, page []Message) error { return handle(ctx, page) },
	})
	if err != nil {
		return err
	}
	return m.Run(ctx)
}
