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

	Readers   int `json:"readers"`
	ReadBatch int `json:"read_batch"`
	// Of pubsub. Each group reads everything; a queue has one.
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
	// wire is how a reader reads by way of a serving node; nil: not at all.
	wire func(l QueueLoad, number int) wireReading
	// describe says what it does.
	describe string
	// ordered says whether a writer's messages are read in its order even if it
	// does not wait for one answer before the next call.
	ordered bool
}

// writeSide writes for all writers of a process.
type writeSide interface {
	// send begins to write messages. done is called once, when they are committed
	// or refused; send may wait for that, or for room.
	send(ctx context.Context, writer int, payloads [][]byte, done func(error)) error
	// close returns when everything is answered.
	close()
}

// readSide reads for all readers of a process.
type readSide interface {
	// open is a reader; there are load.sources().
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
	case l.Mode != "pubsub":
		return l.Readers
	case l.Strategy == "counter-rows":
		return l.Groups * l.Partitions
	default:
		return l.Groups
	}
}

// groups is how many times each message is read.
func (l QueueLoad) groups() int {
	if l.Mode == "pubsub" {
		return l.Groups
	}
	return 1
}

// maxConnections keeps two parts below PostgreSQL's default of 100.
const maxConnections = 45

// connections is how many a part may have: textbook strategies want one for
// each call that is under way.
func (l QueueLoad) connections(role string) int {
	if role == "writers" {
		return min(l.Writers*l.InFlight+2, maxConnections)
	}
	return min(l.sources()+4, maxConnections)
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
