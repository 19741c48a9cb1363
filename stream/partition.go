package stream

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxPartitions is the most partitions that a stream can have.
const MaxPartitions = 1024

// ErrCrossPartition: the messages of one append have keys of several
// partitions, which cannot be stored all or none. Nothing was stored.
var ErrCrossPartition = errors.New("stream: messages of one append belong to several partitions")

// Partitions is how many partitions the stream has; 0 if it is an ordinary one.
func (s *Stream) Partitions() int { return s.count }

// Partition returns a partition, from 0 on: a Stream that is appended to, read,
// followed and inspected as any other. An ordinary stream is its own partition 0.
// It panics if there is no such partition.
func (s *Stream) Partition(i int) *Stream {
	if s.count == 0 && i == 0 {
		return s
	}
	return s.parts[i]
}

// Together returns streams as if they were the partitions of one, for a
// PartitionedAppender, whose Appenders share connections.
func Together(parts ...*Stream) *Stream { return &Stream{count: len(parts), parts: parts} }

// PartitionOf is the partition of messages with that key: the first four bytes
// of its SHA-256 as a big-endian number, modulo the number of partitions. The
// same goes for the ID of a client whose messages have no key. It never
// changes, and tidewire.partition_of(key, partitions) is the same in SQL.
func (s *Stream) PartitionOf(key string) int {
	if s.count == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:4]) % uint32(s.count))
}

// route returns the partition that messages have to go to together. If none has
// a key, ok is false.
func (s *Stream) route(msgs []Message) (partition int, ok bool, err error) {
	for i := range msgs {
		if msgs[i].Key == "" {
			continue
		}
		if p := s.PartitionOf(msgs[i].Key); !ok {
			partition, ok = p, true
		} else if p != partition {
			return 0, false, fmt.Errorf("%w: %d and %d; append the messages of each apart", ErrCrossPartition, partition, p)
		}
	}
	return partition, ok, nil
}

// checkSingle refuses what is not done with a stream that has partitions.
func (s *Stream) checkSingle(what string) error {
	if s.count > 0 {
		return fmt.Errorf("%s stream %q: %w: choose one of %d", what, s.name, ErrPartitioned, s.count)
	}
	return nil
}
