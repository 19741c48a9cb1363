package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// QueueLoad is the workload of Queue, as its parts are told it.
type QueueLoad struct {
	Mode     string `json:"mode"` // queue or pubsub
	Strategy string `json:"strategy"`

	Writers  int     `json:"writers"`
	InFlight int     `json:"in_flight"` // calls of a writer that are not answered
	Batch    int     `json:"batch"`     // messages of a call
	Payload  int     `json:"payload"`   // bytes
	Rate     float64 `json:"rate"`      // messages/s of all writers, at times fixed in advance; 0: as fast as it goes

	// Streams is how many streams, or queues, there are. Each message goes to one of
	// them: those of a writer take turns, and no stream has two writers, unless there is
	// but one stream. Each queue has a reader of its own, and each group of pubsub one
	// for each stream.
	Streams int `json:"streams"`

	Readers   int `json:"readers"`
	ReadBatch int `json:"read_batch"`
	// Of pubsub. Each group reads everything; a queue has one. With 0, nobody reads.
	Groups     int `json:"groups"`
	Partitions int `json:"partitions"` // of counter-rows, each with a reader in each group

	// Server is the URL of the /ws by which the parts go, or "" for PostgreSQL.
	Server string        `json:"server,omitempty"`
	Linger time.Duration `json:"linger"` // lease and log: how long a commit waits for company, and its announcement too
}

// sides is what a strategy gives the parts to work with.
type sides struct {
	// prepare makes fresh tables.
	prepare func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) error
	// writer opens the writing side of a process.
	writer func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (writeSide, error)
	// reader opens the reading side.
	reader func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (readSide, error)
	// stored opens what reads a run back that nobody has read; nil: there is no such run.
	stored func(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (storedSide, error)
	// wire is how a reader reads by way of a serving node; nil: not at all.
	wire func(l QueueLoad, number int) wireReading
	// describe says what it does.
	describe string
	// ordered says whether a writer's messages are read in its order even if it
	// does not wait for one answer before the next call.
	ordered bool
	// many says that there may be any number of streams.
	many bool
}

// writeSide writes for all writers of a process.
type writeSide interface {
	// send begins to write messages to a stream. done is called once, when they are
	// committed or refused; send may wait for that, or for room.
	send(ctx context.Context, writer, stream int, payloads [][]byte, done func(error)) error
	// close returns when everything is answered.
	close()
}

// readSide reads for all readers of a process.
type readSide interface {
	// open is a reader, of load.streamOf that; there are load.sources().
	open(ctx context.Context, number int) (source, error)
	close()
}

// source is one reader. Not for concurrent use.
type source interface {
	// receive waits for messages and returns their payloads, which are valid
	// until ack, which returns when it is recorded that they were read.
	receive(ctx context.Context) (payloads [][]byte, err error)
	ack(ctx context.Context) error
	close()
}

// sources is how many readers there are.
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

// streamOf is the stream of a reader. Its group is its number modulo the groups.
func (l QueueLoad) streamOf(source int) int { return source / l.groups() % max(l.Streams, 1) }

// origins is how many there are whose messages are numbered: writers or, where there
// are many, streams.
func (l QueueLoad) origins() int {
	if l.Streams > 1 {
		return l.Streams
	}
	return l.Writers
}

// target is the stream of a writer's call, and whose message it is.
func (l QueueLoad) target(writer, call int) (stream, origin int) {
	if l.Streams <= 1 {
		return 0, writer
	}
	own := (l.Streams - writer + l.Writers - 1) / l.Writers // streams of the writer
	stream = writer + call%own*l.Writers
	return stream, stream
}

// streamName is the name of a stream or queue.
func (l QueueLoad) streamName(n int) string {
	if l.Streams <= 1 {
		return benchStream
	}
	return fmt.Sprintf("%s-%d", benchStream, n)
}

// groups is how many times each message is read.
func (l QueueLoad) groups() int {
	if l.Mode == "pubsub" {
		return l.Groups
	}
	return 1
}

// publishOnly reports whether nobody reads while it is measured.
func (l QueueLoad) publishOnly() bool { return l.Mode == "pubsub" && l.Groups == 0 }

// latencyPrefix is that of the latencies which speak for a run.
func (l QueueLoad) latencyPrefix() string {
	if l.publishOnly() {
		return "write_"
	}
	return "end_to_end_"
}

// maxConnections keeps two parts below PostgreSQL's default of 100.
const maxConnections = 45

// connections is how many a part may have: textbook strategies want one for
// each call that is under way.
func (l QueueLoad) connections(role string) int {
	if role == "writers" {
		return min(l.Writers*l.InFlight+2, maxConnections)
	}
	return min(l.sources()+4, maxConnections) // of many streams, most share some
}

// strategies are all there are, by mode.
var strategies = map[string]map[string]sides{
	"queue": {
		"lease":             lease,
		"skip-locked":       skipLocked("SELECT … FOR UPDATE SKIP LOCKED, one message a transaction, and an archive", 1),
		"skip-locked-batch": skipLocked("the same, many messages a transaction", 0),
	},
	"pubsub": {"log": pubsubLog, "counter-rows": counterRows},
}

// sidesOf is the load's strategy.
func sidesOf(l QueueLoad) sides {
	s := strategies[l.Mode][l.Strategy]
	if l.Server != "" {
		return overWire(s)
	}
	return s
}

// CheckWire returns an error that names what no server offers.
func CheckWire(mode string, names []string) error {
	for _, name := range names {
		if strategies[mode][name].wire == nil {
			return fmt.Errorf("%q is not what a server does", name)
		}
	}
	return nil
}

// CheckMany returns an error that names what has one stream only.
func CheckMany(mode string, names []string) error {
	for _, name := range names {
		if !strategies[mode][name].many {
			return fmt.Errorf("%q has no streams", name)
		}
	}
	return nil
}

// CheckStrategies returns an error that names what is none of the mode's.
func CheckStrategies(mode string, names []string) error {
	known := slices.Sorted(maps.Keys(strategies[mode]))
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%q is none of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}
