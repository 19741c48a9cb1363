package stream

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxPartitions is the maximum number of partitions of a stream.
const MaxPartitions = 1024

// ErrCrossPartition: the keys of the messages of one append belong to several
// partitions, so they cannot be stored atomically. Nothing was stored.
var ErrCrossPartition = errors.New("stream: messages of one append belong to several partitions")

// Partitions is the number of partitions of the stream; 0 for a stream without
// partitions.
func (s *Stream) Partitions() int { return s.count }

// Partition returns partition i, from 0 on: a Stream that can be used like any
// other. A stream without partitions is its own partition 0. It panics if there is
// no such partition.
func (s *Stream) Partition(i int) *Stream {
	if s.count == 0 && i == 0 {
		return s
	}
	return s.parts[i]
}

// Together combines streams as if they were the partitions of one, for a
// PartitionedAppender.
func Together(parts ...*Stream) *Stream { return &Stream{count: len(parts), parts: parts} }

// PartitionOf is the partition of messages with that key: the first four bytes of
// its SHA-256 as a big-endian number, modulo the number of partitions. For messages
// without a key, the client's ID in their RequestID is used instead. The function
// never changes; tidewire.partition_of(key, partitions) is the same in SQL.
func (s *Stream) PartitionOf(key string) int {
	if s.count == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:4]) % uint32(s.count))
}

// route returns the one partition to which all messages have to go. If none has a
// key, ok is false.
func (s *Stream) route(msgs []Message) (partition int, ok bool, err error) {
	for i := range msgs {
		if msgs[i].Key == "" {
			continue
		}
		if p := s.PartitionOf(msgs[i].Key); !ok {
			partition, ok = p, true
		} else if p != partition {
			return 0, false, fmt.Errorf("%w: %d and %d; append the messages of each partition separately", ErrCrossPartition, partition, p)
		}
	}
	return partition, ok, nil
}

// checkSingle returns ErrPartitioned if the stream has partitions.
func (s *Stream) checkSingle(what string) error {
	if s.count > 0 {
		return fmt.Errorf("%s stream %q: %w: choose one of %d", what, s.name, ErrPartitioned, s.count)
	}
	return nil
}
