package gateway

import (
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// begin writes the fields that all messages of a subscription begin with.
func begin(w *wire.Writer, kind, stream, subscription string) {
	w.Open()
	w.Name("type")
	w.Text(kind)
	w.Name("stream")
	w.Text(stream)
	w.Name("subscription")
	w.Text(subscription)
}

func writePartition(w *wire.Writer, partition int) {
	if partition == unparted {
		return
	}
	w.Name("partition")
	w.Int(int64(partition))
}

// writeOf writes a message of a partition for a member of a group.
func writeOf(w *wire.Writer, stream, subscription string, partition int, m *engine.Message) {
	begin(w, "message", stream, subscription)
	writePartition(w, partition)
	writeBody(w, m)
	w.Close()
}

// writePosition writes how far the server has read.
func writePosition(w *wire.Writer, stream, subscription string, partition int, position int64) {
	begin(w, "position", stream, subscription)
	writePartition(w, partition)
	w.Name("position")
	w.Int(position)
	w.Close()
}

// writeAssigned writes which partitions a member has come to own, and after which positions they begin.
func writeAssigned(w *wire.Writer, stream, subscription string, assigned []engine.PartitionAt) {
	begin(w, "assigned", stream, subscription)
	writeList(w, "partitions", assigned, func(a engine.PartitionAt) int64 { return int64(a.Partition) })
	writeList(w, "positions", assigned, func(a engine.PartitionAt) int64 { return a.Position })
	w.Close()
}

// writeRevoked writes which partitions a member does not own any more.
func writeRevoked(w *wire.Writer, stream, subscription string, partitions []int) {
	begin(w, "revoked", stream, subscription)
	writeList(w, "partitions", partitions, func(n int) int64 { return int64(n) })
	w.Close()
}

// writeParked writes that a partition waits for a commit, and why.
func writeParked(w *wire.Writer, stream, subscription string, at engine.Parked) {
	begin(w, "parked", stream, subscription)
	writePartition(w, at.Partition)
	w.Name("code")
	if at.TooLarge == nil {
		w.Text(string(engine.CodeTooOld))
	} else {
		w.Text(string(engine.CodeMessageTooLarge))
		w.Name("position")
		w.Int(at.TooLarge.Position)
		w.Name("size")
		w.Int(at.TooLarge.Size)
	}
	w.Name("oldest")
	w.Int(at.Oldest)
	w.Close()
}

func writeList[T any](w *wire.Writer, name string, all []T, number func(T) int64) {
	w.Name(name)
	w.OpenList()
	for _, one := range all {
		w.Next()
		w.Int(number(one))
	}
	w.CloseList()
}
