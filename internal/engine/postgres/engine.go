package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/schedule"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// Config configures an Engine.
type Config struct {
	Pool *pgxpool.Pool
	// MaxMessage is the largest payload that is read, in bytes: others may have stored larger ones. Defaults to no bound.
	MaxMessage int
	// BufferBytes bounds the messages that are kept in memory for the subscriptions of a stream, and for the consumers of a queue, each, in bytes, if
	// that is less than the defaults of packages stream and queue. Defaults to no such bound.
	BufferBytes int
	// URL is the URL of the same database, for the readiness probe. The probe has a separate
	// connection, because the pool may be exhausted.
	URL string
	// Standby answers the reads that it can answer. Defaults to none.
	Standby *standby.Reader
	// Stores enables streams, queues and events. Defaults to false.
	Stores bool
	// Rooms enables stored rooms. Defaults to false.
	Rooms bool
	// RoomsKeep is what stored rooms keep, all together: by age, and by bytes. Defaults to what was set before, which is everything at first.
	RoomsKeep stream.Retention
	// RoomBatchBytes is the largest size of one batch of chats, in bytes. Defaults to the
	// default of stream.AppenderConfig.
	RoomBatchBytes int
	// Ingest serves /ws/ingest. Defaults to none.
	Ingest *ingest.Ingester
	// Peers passes what this node commits to streams to the other nodes, and back. Defaults to none.
	Peers stream.Peers
	// MaxOpenStreams is the number of open streams above which idle ones are closed sooner.
	// Defaults to no limit.
	MaxOpenStreams int
	// GroupLease is how long a member of a group that shares partitions keeps them after its server has died. Defaults to
	// 15 s.
	GroupLease time.Duration
	// Metrics gets the metrics of the engine. Required.
	Metrics prometheus.Registerer
	// Log receives errors of the database. Required.
	Log *slog.Logger
}

// Engine is the engine on one PostgreSQL database. Run starts it, Stop ends it.
type Engine struct {
	cfg     Config
	ingest  *ingest.Ingester // nil if not served
	rooms   *rooms           // nil if no room is stored
	streams *streams         // nil if not served
	queues  *queues          // nil if not served
	events  *events          // nil if not served

	head     int64 // last position of the stored rooms when the engine was opened
	ready    *readiness
	probe    *writeProbe
	watch    stallWatch
	received progress // progress of ingest
	size     databaseSize

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// roomsStream is the stream that stores the messages of stored rooms, with the
// room as key.
const roomsStream = engine.ReservedPrefix + "rooms"

// Open opens the engine, and creates missing tables of the parts that are served.
// The schema must exist.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	e := &Engine{cfg: cfg, ingest: cfg.Ingest}
	history, err := migrate.EnterHistory(ctx, cfg.Pool)
	if err != nil {
		return nil, err
	}
	if e.ingest != nil {
		registerIngest(cfg.Metrics, e.ingest)
	}
	if cfg.Stores {
		if err := e.openStores(ctx); err != nil {
			return nil, err
		}
		e.events.history = history
		registerQueues(cfg.Metrics, e.queues)
		registerLosses(cfg.Metrics, "messages", e.streams.hub.Lost)
		registerLosses(cfg.Metrics, "events", e.events.lost.Load)
	}
	if cfg.Rooms {
		if err := e.openRooms(ctx); err != nil {
			return nil, err
		}
	}
	if cfg.Peers != nil {
		registerPeers(cfg.Metrics, e.hubs())
	}
	if cfg.Standby != nil {
		registerStandby(cfg.Metrics, cfg.Standby)
	}
	registerHosts(cfg.Metrics, cfg.Pool)
	registerPool(cfg.Metrics, cfg.Pool)
	e.probe = newWriteProbe(cfg.URL)
	e.ready = &readiness{probe: e.probe.write, stalled: e.watch.stalled}
	return e, nil
}

func (e *Engine) openStores(ctx context.Context) (err error) {
	e.streams = newStreams(e.cfg)
	if e.cfg.MaxOpenStreams > 0 {
		e.streams.maxOpen = e.cfg.MaxOpenStreams
	}
	e.queues = newQueues(e.cfg, e.streams.hub)
	e.queues.made = e.madeQueue
	e.events, err = newEvents(ctx, e.cfg.Pool, e.cfg.Standby, e.cfg.Log)
	return err
}

func (e *Engine) openRooms(ctx context.Context) error {
	log, err := stream.Ensure(ctx, e.cfg.Pool, roomsStream, stream.Options{Keyed: true, OwnTables: true})
	if err != nil {
		return err
	}
	log = log.WithMaxMessage(e.cfg.MaxMessage)
	if e.head, err = log.Head(ctx); err != nil {
		return err
	}
	if e.cfg.RoomsKeep != (stream.Retention{}) {
		if err := log.SetRetention(ctx, e.cfg.RoomsKeep); err != nil {
			return err
		}
	}
	hub := newHub(e.cfg)
	e.rooms = &rooms{log: log, hub: hub, logger: e.cfg.Log, pool: e.cfg.Pool, retains: !e.cfg.Stores, appender: stream.NewAppender(e.cfg.Pool, log, stream.AppenderConfig{
		MaxBatchBytes: e.cfg.RoomBatchBytes, Hub: hub, Writer: stream.WriterConfig{Log: e.cfg.Log},
	})}
	registerLosses(e.cfg.Metrics, "chats", hub.Lost)
	return nil
}

// announceEvery is the minimum time between two announcements of commits if there are Peers: an announcement costs
// PostgreSQL some work for each node, and is only for programs outside of the cluster.
const announceEvery = 20 * time.Millisecond

// defaultTail and defaultBuffer are the defaults of stream.HubConfig and queue.NodeConfig.
const (
	defaultTail   = 8 << 20
	defaultBuffer = 16 << 20
)

// newHub returns a Hub on the engine's database.
func newHub(cfg Config) *stream.Hub {
	hub := stream.HubConfig{Announce: true, MaxMessage: cfg.MaxMessage, Standby: cfg.Standby, Peers: cfg.Peers, Log: cfg.Log}
	if cfg.BufferBytes > 0 {
		hub.TailBytes = min(cfg.BufferBytes, defaultTail)
	}
	if cfg.Peers != nil {
		hub.AnnounceEvery = announceEvery
	}
	return stream.NewHub(cfg.Pool, hub)
}

// hubs returns the Hubs that there are.
func (e *Engine) hubs() (all []*stream.Hub) {
	if e.streams != nil {
		all = append(all, e.streams.hub)
	}
	if e.rooms != nil {
		all = append(all, e.rooms.hub)
	}
	return all
}

// Serves returns what the engine serves, for the gateway.
func (e *Engine) Serves() engine.Engine {
	s := engine.Engine{Ready: e.ready.check, Remark: e.remark, Database: e.database}
	if e.ingest != nil {
		s.Ingest = func(onCommit func(uint64)) engine.Source { return e.ingest.Source(onCommit) }
	}
	if e.streams != nil {
		s.Streams, s.Queues, s.Events, s.Schedules = e.streams, e.queues, e.events, schedules{e.cfg.Pool}
	}
	if e.rooms != nil {
		s.Rooms, s.RoomsHead = e.rooms, e.head
	}
	return s
}

// remark returns why a configured standby is not read, or "".
func (e *Engine) remark() string {
	if e.cfg.Standby == nil {
		return ""
	}
	if problem := e.cfg.Standby.Problem(); problem != "" {
		return "the standby is not read: " + problem
	}
	return ""
}

// madeQueue is called after a queue was created, perhaps from a stream, or in place of one
// that another node has dropped.
func (e *Engine) madeQueue(ctx context.Context, q *queue.Queue) {
	if o, open := e.queues.open.peek(q.Name()); open && o.Stream().ID() != q.Stream().ID() {
		e.queues.changed(ctx, q.Name())
	}
	e.queues.open.changed(named(q.Name()))
	e.streams.becameQueue(q.Name())
}

// Run starts the engine, which runs until Stop.
func (e *Engine) Run(ctx context.Context) {
	ctx, e.cancel = context.WithCancel(ctx)
	e.watch.all = e.writers
	e.running.Go(func() { e.watch.run(ctx.Done()) })
	if e.ingest != nil {
		e.running.Go(func() { e.ingest.Run(ctx) })
	}
	if e.rooms != nil {
		e.running.Go(func() { e.rooms.run(ctx) })
	}
	if e.streams != nil {
		e.streams.followers.Go(func() { e.queues.run(ctx) })
		runner := schedule.NewRunner(e.cfg.Pool, schedule.RunnerConfig{Committed: e.streams.hub.Notify, Log: e.cfg.Log})
		e.streams.followers.Go(func() { runner.Run(ctx) })
		e.running.Go(func() { e.streams.run(ctx) })
	}
	if e.events != nil {
		e.running.Go(func() { e.events.watchHistory(ctx) })
	}
}

// writers yields the progress counters that the readiness check watches. Event stores are not among them: a transaction of the application
// may hold a store's lock for any time.
func (e *Engine) writers(yield func(*progress)) {
	if e.ingest != nil {
		now := e.ingest.Stats()
		e.received.begun.Store(int64(now.Received))
		e.received.ended.Store(int64(now.Received) - now.Inflight)
		yield(&e.received)
	}
	if e.streams != nil {
		for _, o := range e.streams.open.all() {
			yield(&o.progress)
		}
		for _, o := range e.queues.open.all() {
			yield(&o.progress)
		}
		yield(&e.streams.open.waiting)
		yield(&e.streams.opened.waiting)
		yield(&e.queues.open.waiting)
	}
	if e.events != nil {
		yield(&e.events.open.waiting)
	}
}

// Abandon gives up accepted messages that are not stored: their callers get the
// answer that the outcome is unknown. Nothing more is accepted.
func (e *Engine) Abandon() {
	if e.ingest != nil {
		e.ingest.Abandon()
	}
	if e.rooms != nil {
		e.rooms.appender.Abandon()
	}
	if e.streams != nil {
		e.streams.abandon()
		e.queues.abandon()
		e.events.abandon()
	}
}

// Stop waits until everything accepted is stored, at most until ctx ends. The engine must
// not be used after it.
func (e *Engine) Stop(ctx context.Context) error {
	defer e.probe.close()
	defer e.ready.end()
	e.cancel()
	giveUp := context.AfterFunc(ctx, e.Abandon)
	defer giveUp()
	if e.events != nil {
		e.events.close(ctx)
	}
	e.running.Wait()
	if e.ingest == nil {
		return nil
	}
	return lost(e.ingest.Stats())
}

// lost returns an error about messages that were received and are not known to
// be stored.
func lost(done ingest.Stats) (err error) {
	if done.Failed > 0 {
		err = fmt.Errorf("%d messages were received and could not be stored", done.Failed)
	}
	if n := done.Inflight + int64(done.Abandoned); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages were received and given up, because PostgreSQL did not answer in time: they may be stored", n))
	}
	return err
}
