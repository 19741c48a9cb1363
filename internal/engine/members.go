package engine

import "context"

// Membership is a member of a group whose members divide the partitions of a stream among themselves. A stream
// without partitions has one, 0. Only one goroutine may call Poll; the other methods may be called by others at
// the same time.
type Membership interface {
	// Ready returns a channel of one slot that is signalled when Poll may return something new.
	Ready() <-chan struct{}
	// Poll returns what has happened, without waiting for messages: changes of ownership, in order, or one to most
	// messages of one partition, in order, without gap or repetition. With a most of 0 it returns changes alone. If
	// there is nothing the Share is empty. No messages of a partition come before its Assigned and after its
	// Revoked. The caller must not change the messages. Any error but ctx's is permanent.
	Poll(ctx context.Context, most int) (Share, error)
	// Commit moves the group's offset of a partition forward, as Streams.Commit does. If the member does not own
	// the partition, or no longer, the error is ErrFenced.
	Commit(ctx context.Context, partition int, position int64) (offset int64, err error)
	// CommitLater is Commit without a result; it does not wait for the commit.
	CommitLater(partition int, position int64) error
	// Close gives all partitions back, and waits for that, but not for long while the database is away. Poll must
	// not be called after it.
	Close()
}

// Share is one of: partitions that a member has come to own, partitions that it has lost, a partition that is
// parked, or messages of a partition.
type Share struct {
	// Assigned are partitions, with the positions after which their messages begin.
	Assigned []PartitionAt
	// Revoked are partitions that the member does not own any more.
	Revoked []int
	// Parked is a partition whose next messages were dropped, or whose next message is too large. The member keeps it, and
	// gets messages after the offset of the group is moved.
	Parked *Parked

	// Partition is that of the Messages.
	Partition int
	Messages  []Message
}

// Parked is a partition at which a member waits: reading goes on when the offset of the group is Oldest - 1 or later.
type Parked struct {
	Partition int
	Oldest    int64
	TooLarge  *TooLargeError // nil if the messages before Oldest were dropped
}

// PartitionAt is a position in a partition.
type PartitionAt struct {
	Partition int
	Position  int64
}

// Empty reports whether nothing has happened.
func (s Share) Empty() bool {
	return len(s.Assigned) == 0 && len(s.Revoked) == 0 && s.Parked == nil && len(s.Messages) == 0
}
