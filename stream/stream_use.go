package stream

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"
)

// Append stores the messages, in this order and at consecutive positions, all or none of them, and returns
// their positions once they are committed. Concurrent callers share commits (group commit). While PostgreSQL
// is unavailable it waits.
//
// In a stream with partitions the messages of a call go to the partition of their key. Messages without a key
// go to the same partition as the others of the call; if none has a key, the calls go to the partitions in
// turn. If the keys belong to several partitions, the error is ErrCrossPartition.
//
// Errors: ErrNotRunning for a Stream without a Client, ErrClosed, ErrInvalid, ErrCrossPartition, ErrNotFound
// for a stream that was dropped, and PostgreSQL's own errors mean that nothing was stored. If ctx ends first,
// or with ErrOutcomeUnknown, the messages may be stored or not: use AppendAs for appends that are safe to
// repeat.
func (s *Stream) Append(ctx context.Context, msgs ...Message) (Appended, error) {
	return s.do(func(a *PartitionedAppender) (Appended, error) { return a.Append(ctx, msgs...) })
}

// AppendAs is Append with a RequestID, which makes it safe to repeat: see Appender.AppendAs.
func (s *Stream) AppendAs(ctx context.Context, request RequestID, msgs ...Message) (Appended, error) {
	return s.do(func(a *PartitionedAppender) (Appended, error) { return a.AppendAs(ctx, request, msgs...) })
}

// Notify makes subscriptions, in this process and in others, look for new messages at once. Call it after
// committing a transaction with AppendTx: without it, subscriptions find the messages by their next poll. It
// does nothing for a Stream without a Client.
func (s *Stream) Notify() {
	if s.client != nil {
		s.client.hub.Notify(s)
	}
}

// Subscribe yields the messages from start on, first the existing and then the future ones, in order and each
// once. The last iteration has an error and no message: ctx's own, one of Subscription.Next, or ErrNotRunning
// for a Stream without a Client. The loop may be left at any time, and may be slow: it does not delay other
// subscriptions.
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

// Pages is like Subscribe, but yields all available messages at a time, within HubConfig's bounds. The
// messages must not be changed.
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

// Pages yields the messages after the offset of the group, like Stream.Pages. After processing
// a page, call Commit or CommitLater with the position of its last message.
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

// yieldPages yields the pages of a subscription, or err if it is not nil.
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

// Group returns the stream's group of that name, and creates it if it does not exist: see Groups.Open. Its
// offset can be committed until the Client is closed.
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
	// Name of this member of the group, for display. Defaults to a random name.
	Name string
	// Lease is how long a process without heartbeats keeps its partitions. Defaults to 15 s.
	Lease time.Duration
	// Log receives a line when the handler has failed. Defaults to the Client's.
	Log *slog.Logger
}

// Work processes the messages of the stream with a handler, as a member of the group of that name, until ctx
// ends. The partitions are divided among all processes that work in the group; each message is delivered to
// one of them, in the order of its partition. A stream without partitions counts as one partition.
//
// The handler gets pages of messages, one page of each partition at a time. When it returns nil, the offset
// of the group is committed soon; when it returns an error, it gets the same page again after a back-off of
// 10 ms to 1 s. Delivery is at least once: a page may be delivered twice. The handler's ctx ends if the
// partition is lost to another process.
//
// If the group is dropped meanwhile, its offsets are lost, and Work goes on until it ends.
//
// Work returns when the last handler has returned and the offsets are committed: nil after the end of ctx or
// of the Client, else one of the errors of Member.Run, ErrClosed if the Client was closed before, or
// ErrNotRunning for a Stream without a Client.
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
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	return m.Run(ctx)
}
