package tidewire

import "time"

// A SubscribeOption is an option of Subscribe.
type SubscribeOption interface{ subscribe(*SubscribeOptions) }

type subscribeOption func(*SubscribeOptions)

func (o subscribeOption) subscribe(s *SubscribeOptions) { o(s) }

// SubscribeOptions are what SubscribeOptions set, for other implementations of Log.
type SubscribeOptions struct {
	After     *int64
	At        time.Time
	FromStart bool
	Group     string
	Share     bool
	Keys      []string
	Headers   map[string]string
	Credits   int
	Gap       func(Gap)
	Assigned  func(partitions []int)
	Revoked   func(partitions []int)
	Invalid   func(*InvalidMessageError)
}

// NewSubscribeOptions applies options.
func NewSubscribeOptions(options ...SubscribeOption) SubscribeOptions {
	o := SubscribeOptions{Credits: 256}
	for _, option := range options {
		option.subscribe(&o)
	}
	return o
}

// Gap says that the program does not get some messages.
type Gap struct {
	Code      string // too_old: retention has dropped them; message_too_large: the server does not read one, because of its size
	Oldest    int64  // the first position after them that may be there
	Partition int    // of a group that shares partitions; else -1
	Position  int64  // of message_too_large: the message; else 0
	Size      int64  // of message_too_large: the bytes of its payload; else 0
}

// AfterOption is an option of Subscribe, of Join, and of the reads of events.
type AfterOption int64

func (o AfterOption) subscribe(s *SubscribeOptions) { s.After = (*int64)(&o) }
func (o AfterOption) join(j *JoinOptions)           { j.After = (*int64)(&o) }
func (o AfterOption) read(r *ReadOptions)           { r.After = int64(o) }

// After begins after this position; 0 is the beginning.
func After(position int64) AfterOption { return AfterOption(position) }

// At begins at this time.
func At(t time.Time) SubscribeOption { return subscribeOption(func(o *SubscribeOptions) { o.At = t }) }

// FromStart begins at the oldest message that is kept. Without a start a subscription begins with the next message.
func FromStart() SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.FromStart = true })
}

// Group begins after the offset of a group, which Commit moves.
func Group(name string) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Group = name })
}

// Share makes the subscription a member of its group: the members divide the partitions of the stream among themselves.
func Share() SubscribeOption { return subscribeOption(func(o *SubscribeOptions) { o.Share = true }) }

// Keys takes only messages with one of these keys.
func Keys(keys ...string) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Keys = keys })
}

// WithHeaders takes only messages that have all of these headers.
func WithHeaders(headers map[string]string) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Headers = headers })
}

// Credits is how many messages may wait in the library; 256 by default.
func Credits(n int) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Credits = n })
}

// OnGap goes on after messages that were dropped, or are too large for the server, and calls f before. With Share the library then commits
// Oldest - 1 of the partition: what the program has got of it before counts as processed. Without OnGap the iteration ends with a
// TooOldError or a MessageTooLargeError. With Share the subscription lives on: commit Oldest - 1 of the error's partition, or its Position, and
// iterate again. Like the functions of the other options, f is called by the goroutine that iterates, in the order in which things have happened.
func OnGap(f func(Gap)) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Gap = f })
}

// OnAssigned calls f when the member has come to own partitions.
func OnAssigned(f func(partitions []int)) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Assigned = f })
}

// OnRevoked calls f when the member does not own partitions any more.
func OnRevoked(f func(partitions []int)) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Revoked = f })
}

// OnInvalid calls f with a message that the codec refuses, and leaves it out. Without it the iteration yields the error, and goes on if the program does.
func OnInvalid(f func(*InvalidMessageError)) SubscribeOption {
	return subscribeOption(func(o *SubscribeOptions) { o.Invalid = f })
}
