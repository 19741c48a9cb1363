package stream

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PartitionedConfig configures a PartitionedAppender.
type PartitionedConfig struct {
	// OnCommit, if not nil, is called like AppenderConfig.OnCommit, concurrently by
	// one goroutine for each partition.
	OnCommit func(partition int, last int64)
	// Appender configures the Appender of each partition. MaxBatchBytes is divided
	// among the partitions, but each has at least 64 KiB; OnCommit is not called.
	Appender AppenderConfig
}

// minPartitionBytes is the smallest MaxBatchBytes of a partition.
const minPartitionBytes = 64 << 10

func (c PartitionedConfig) withDefaults(partitions int) PartitionedConfig {
	if c.OnCommit == nil {
		c.OnCommit = func(int, int64) {}
	}
	c.Appender = c.Appender.withDefaults()
	c.Appender.MaxBatchBytes = max(c.Appender.MaxBatchBytes/partitions, minPartitionBytes)
	return c
}

// PartitionedAppender appends to the partitions of a stream. The messages of a call go
// to the partition of their key. If none has a key, they go to the partition of their
// RequestID's Client, or without one to each partition in turn (round robin). If some
// have a key, those without go to the same partition. If the keys of a call belong to
// several partitions, it stores nothing, and the error is ErrCrossPartition.
//
// A RequestID is looked up in one partition: a repetition has to give the messages the
// same keys, so that it goes to the same partition.
//
// A stream without partitions counts as one partition. Partitions are written in
// parallel, as far as there are connections: see Appender. Safe for concurrent use.
type PartitionedAppender struct {
	stream *Stream
	parts  []*Appender
	next   atomic.Uint32 // partition, modulo their number
}

// NewPartitionedAppender returns an appender to all partitions of the stream,
// which writes through the pool. It writes nothing before Start.
func NewPartitionedAppender(pool *pgxpool.Pool, s *Stream, cfg PartitionedConfig) *PartitionedAppender {
	n := max(s.count, 1)
	cfg = cfg.withDefaults(n)
	a := &PartitionedAppender{stream: s, parts: make([]*Appender, n)}
	var rotating chan struct{}
	if n > 1 {
		rotating = make(chan struct{}, 1)
	}
	for i := range a.parts {
		own := cfg.Appender
		own.OnCommit = func(last int64) { cfg.OnCommit(i, last) }
		a.parts[i] = newAppender(pool, rotating, s.Partition(i), own)
	}
	return a
}

// Partition returns the Appender to partition i, from 0 on. a.Start and a.Stop
// start and stop it. It stores messages in this partition whatever their keys are:
// give it only messages whose keys belong there (Stream.PartitionOf).
func (a *PartitionedAppender) Partition(i int) *Appender { return a.parts[i] }

// Append is Appender.Append to the partition of the messages.
func (a *PartitionedAppender) Append(ctx context.Context, msgs ...Message) (Appended, error) {
	if err := a.parts[0].runs(); err != nil {
		return Appended{}, err
	}
	return await(ctx, func(done func(Appended, error)) error { return a.Submit(ctx, msgs, done) })
}

// AppendAs is Appender.AppendAs to the partition of the messages.
func (a *PartitionedAppender) AppendAs(ctx context.Context, request RequestID, msgs ...Message) (Appended, error) {
	if err := a.parts[0].runs(); err != nil {
		return Appended{}, err
	}
	return await(ctx, func(done func(Appended, error)) error { return a.SubmitAs(ctx, request, msgs, done) })
}

// Submit is Appender.Submit to the partition of the messages. Calls of one
// partition come from one goroutine, those of different ones at the same time.
func (a *PartitionedAppender) Submit(ctx context.Context, msgs []Message, done func(Appended, error)) error {
	partition, ok, err := a.stream.route(msgs)
	if err != nil {
		return err
	}
	if !ok {
		partition = int(a.next.Add(1) % uint32(len(a.parts)))
	}
	return a.parts[partition].Submit(ctx, msgs, placed(partition, done))
}

// SubmitAs is Submit with a RequestID: see Appender.AppendAs.
func (a *PartitionedAppender) SubmitAs(ctx context.Context, request RequestID, msgs []Message, done func(Appended, error)) error {
	partition, ok, err := a.stream.route(msgs)
	if err != nil {
		return err
	}
	if !ok {
		partition = a.stream.PartitionOf(request.Client)
	}
	return a.parts[partition].SubmitAs(ctx, request, msgs, placed(partition, done))
}

// placed returns a callback that sets the partition and calls done.
func placed(partition int, done func(Appended, error)) func(Appended, error) {
	return func(at Appended, err error) {
		at.Partition = partition
		done(at, err)
	}
}

// Start is Appender.Start for all partitions.
func (a *PartitionedAppender) Start() {
	for _, p := range a.parts {
		p.Start()
	}
}

// Stop is Appender.Stop for all partitions, at the same time.
func (a *PartitionedAppender) Stop() {
	var stopping sync.WaitGroup
	for _, p := range a.parts[1:] {
		stopping.Go(p.Stop)
	}
	a.parts[0].Stop()
	stopping.Wait()
}

// Abandon is Appender.Abandon for all partitions.
func (a *PartitionedAppender) Abandon() {
	for _, p := range a.parts {
		p.Abandon()
	}
}
