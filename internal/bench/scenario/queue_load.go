package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/wire"
)

// QueueLoad is the workload of Queue, as passed to the worker processes.
type QueueLoad struct {
	Mode     string `json:"mode"` // queue or pubsub
	Strategy string `json:"strategy"`

	Writers  int     `json:"writers"`
	InFlight int     `json:"in_flight"` // unanswered calls of a writer
	Batch    int     `json:"batch"`     // messages in one call
	Payload  int     `json:"payload"`   // bytes
	Rate     float64 `json:"rate"`      // messages/s of all writers, at times fixed in advance; 0: as fast as possible

	// Streams is the number of streams or queues. Each message goes to one of them. A
	// writer sends to its streams in turn, and no stream has two writers, unless there
	// is only one stream. Each queue has one reader, and each group of pubsub has one
	// reader for each stream.
	Streams int `json:"streams"`

	Readers   int `json:"readers"`
	ReadBatch int `json:"read_batch"`
	// For pubsub. Each group reads everything; a queue has one group. With 0, nobody reads.
	Groups int `json:"groups"`
	// Ungrouped: each group is a subscriber (see watchers).
	Ungrouped  bool `json:"ungrouped,omitempty"`
	Partitions int  `json:"partitions"` // of counter-rows, each with a reader in each group

	// Server is the URL of the /ws that the worker processes use, or "" for PostgreSQL.
	Server string `json:"server,omitempty"`
	// Encoding is that of the messages there: json or cbor.
	Encoding string `json:"encoding,omitempty"`
	// Compress: the clients offer compression there.
	Compress bool `json:"compress,omitempty"`
	// Connections is the number of connections that the writers share there, or 0: each has one.
	Connections int           `json:"connections,omitempty"`
	Linger      time.Duration `json:"linger"` // lease and log: how long a commit waits for more messages, and its notification again
}

// sides is what a strategy provides to the worker processes.
type sides struct {
	// prepare creates fresh tables.
	prepare func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) error
	// writer opens the writing side of a process.
	writer func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (writeSide, error)
	// reader opens the reading side.
	reader func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error)
	// stored opens what reads back a run without readers; nil: the strategy has no such run.
	stored func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (storedSide, error)
	// wire returns how a reader reads through a serving node; nil: not supported.
	wire func(l QueueLoad, number int) wireReading
	// describe says what it does.
	describe string
	// ordered: a writer's messages are read in its order even if it has several
	// calls in flight.
	ordered bool
	// many: there may be any number of streams.
	many bool
}

// writeSide writes for all writers of a process.
type writeSide interface {
	// send starts to write messages to a stream. done is called once, when they are
	// committed or rejected. send may wait for that, or for free capacity.
	send(ctx context.Context, writer, stream int, payloads [][]byte, done func(error)) error
	// close returns when everything is answered.
	close()
}

// readSide reads for all readers of a process.
type readSide interface {
	// open returns a reader, which reads load.streamOf(number). There are load.sources() readers.
	open(ctx context.Context, number int) (source, error)
	close()
}

// source is one reader. Not for concurrent use.
type source interface {
	// receive waits for messages and returns their payloads, which are valid
	// until ack. ack returns when it is recorded that they were read.
	receive(ctx context.Context) (payloads [][]byte, err error)
	ack(ctx context.Context) error
	close()
}

// sources returns the number of readers.
func (l QueueLoad) sources() int {
	switch {
	case l.Mode != "pubsub" && l.Streams > 1:
		return l.Streams
	case l.Mode != "pubsub":
		return l.Readers
	case l.Strategy == "counter-rows":
		return l.Groups * l.Partitions
	default:
		return l.Groups * max(l.Streams, 1)
	}
}

// streamOf returns the stream of a reader. Its group is its number modulo the groups.
func (l QueueLoad) streamOf(source int) int { return source / l.groups() % max(l.Streams, 1) }

// origins returns the number of sources of message numbers: writers, or streams if
// there are several.
func (l QueueLoad) origins() int {
	if l.Streams > 1 {
		return l.Streams
	}
	return l.Writers
}

// target returns the stream of a writer's call, and the origin that numbers its messages.
func (l QueueLoad) target(writer, call int) (stream, origin int) {
	if l.Streams <= 1 {
		return 0, writer
	}
	own := (l.Streams - writer + l.Writers - 1) / l.Writers // streams of the writer
	stream = writer + call%own*l.Writers
	return stream, stream
}

// streamName returns the name of a stream or queue.
func (l QueueLoad) streamName(n int) string {
	if l.Streams <= 1 {
		return benchStream
	}
	return fmt.Sprintf("%s-%d", benchStream, n)
}

// groups returns how many times each message is read.
func (l QueueLoad) groups() int {
	if l.Mode == "pubsub" {
		return l.Groups
	}
	return 1
}

// publishOnly reports whether nobody reads during the measurement.
func (l QueueLoad) publishOnly() bool { return l.Mode == "pubsub" && l.Groups == 0 }

// latencyPrefix returns the prefix of the main latencies of a run.
func (l QueueLoad) latencyPrefix() string {
	if l.publishOnly() {
		return "write_"
	}
	return "end_to_end_"
}

// maxConnections keeps two worker processes below PostgreSQL's default of 100 connections.
const maxConnections = 45

// connections returns the number of connections of a worker process. Textbook
// strategies need one for each call in flight.
func (l QueueLoad) connections(role string) int {
	if role == "writers" {
		return min(l.Writers*l.InFlight+2, maxConnections)
	}
	return min(l.sources()+4, maxConnections) // with many streams, most readers share connections
}

// strategies has all strategies, by mode and name.
var strategies = map[string]map[string]sides{
	"queue": {
		"lease":             lease,
		"skip-locked":       skipLocked("SELECT … FOR UPDATE SKIP LOCKED, one message a transaction, and an archive", 1),
		"skip-locked-batch": skipLocked("the same, with many messages a transaction", 0),
	},
	"pubsub": {"log": pubsubLog, "counter-rows": counterRows},
}

func (l QueueLoad) wire() bench.WireConfig {
	return bench.WireConfig{Encoding: wire.EncodingOf(l.Encoding), Compress: l.Compress}
}

// sidesOf is the load's strategy.
func sidesOf(l QueueLoad) sides {
	s := strategies[l.Mode][l.Strategy]
	if l.Server != "" {
		return overWire(s)
	}
	return s
}

// CheckWire returns an error that names strategies which servers do not support.
func CheckWire(mode string, names []string) error {
	for _, name := range names {
		if strategies[mode][name].wire == nil {
			return fmt.Errorf("a server does not support %q", name)
		}
	}
	return nil
}

// CheckMany returns an error that names strategies with one stream only.
func CheckMany(mode string, names []string) error {
	for _, name := range names {
		if !strategies[mode][name].many {
			return fmt.Errorf("%q has no streams", name)
		}
	}
	return nil
}

// CheckStrategies returns an error that names unknown strategies of the mode.
func CheckStrategies(mode string, names []string) error {
	known := slices.Sorted(maps.Keys(strategies[mode]))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%q is none of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
