package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// stores are what the endpoints of one server write to.
type stores struct {
	ingest  *ingest.Ingester // nil if not served
	rooms   *stream.Appender // nil if no room is stored
	streams *streamStore     // nil if not served
	queues  *queueStore      // nil if not served
	events  *eventStores     // nil if not served

	watch    stallWatch
	received progress // of ingest

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// roomsStream is the stream that keeps what is said in stored rooms, by room.
const roomsStream = "tidewire.rooms"

// openStores makes what the served endpoints need and tells cfg.
func (c *serveCmd) openStores(p *process, pool *pgxpool.Pool, reader *standby.Reader, cfg *gateway.Config) (s *stores, err error) {
	s = &stores{}
	history, err := migrate.EnterHistory(p.ctx, pool)
	if err != nil {
		return nil, explainDatabase(err)
	}
	if cfg.Only == gateway.All || cfg.Only == gateway.Ingest {
		if _, err := migrate.Ingest(p.ctx, pool, c.Table); err != nil { // is it ours?
			return nil, explainDatabase(err)
		}
		if s.ingest, err = ingest.New(pool, c.ingestFlags.config(p)); err != nil {
			return nil, exit(ExitUsage, "%w", err)
		}
		registerIngest(cfg.Metrics, s.ingest)
		cfg.NewSource = func(onCommit func(uint64)) gateway.Source { return s.ingest.Source(onCommit) }
	}
	if cfg.Only == gateway.All {
		s.streams = newStreamStore(pool, reader, p.log)
		s.streams.maxOpen = int(budget.ClientShare(c.memory) / 8 / openStreamBytes)
		cfg.Streams = gateway.StreamsConfig{Store: s.streams, Reader: s.streams, Admin: streamAdmin{pool, s.streams.made, s.streams.dropped}, MaxPartitions: c.MaxPartitions}
		s.queues = newQueueStore(pool, s.streams.hub, p.log)
		registerQueues(cfg.Metrics, s.queues)
		s.events = newEventStores(pool, reader, p.log)
		s.events.history = history
		cfg.Events = s.events
		registerLosses(cfg.Metrics, "messages", s.streams.hub.Lost)
		registerLosses(cfg.Metrics, "events", s.events.lost.Load)
		cfg.Queues = gateway.QueuesConfig{Store: s.queues, Leases: s.queues, Admin: queueAdmin{pool, s.madeQueue, s.queues.changed}}
	}
	if len(c.StoredRooms) > 0 && cfg.Only != gateway.Ingest {
		log, err := stream.Ensure(p.ctx, pool, roomsStream, stream.Options{Keyed: true, OwnTables: true})
		if err != nil {
			return nil, explainDatabase(err)
		}
		if cfg.Chat.StoreHead, err = log.Head(p.ctx); err != nil {
			return nil, explainDatabase(err)
		}
		s.rooms = stream.NewAppender(pool, log, stream.AppenderConfig{
			MaxBatchBytes: int(c.MaxInflightBytes) / 8, Writer: stream.WriterConfig{Log: p.log},
		})
		rooms := &roomStore{log: log, appender: s.rooms, logger: p.log}
		registerLosses(cfg.Metrics, "chats", rooms.lost.Load)
		cfg.Chat.Store = rooms
	}
	return s, nil
}

// madeQueue is told of a queue that was made just now, perhaps of a stream, or in place of
// one that another node has dropped.
func (s *stores) madeQueue(ctx context.Context, q *queue.Queue) {
	if o, open := s.queues.open.peek(q.Name()); open && o.Stream().ID() != q.Stream().ID() {
		s.queues.changed(ctx, q.Name())
	}
	s.queues.open.changed(named(q.Name()))
	s.streams.becameQueue(q.Name())
}

// run lets the stores write until stop.
func (s *stores) run(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.watch.all = s.writers
	s.running.Go(func() { s.watch.run(ctx.Done()) })
	if s.ingest != nil {
		s.running.Go(func() { s.ingest.Run(ctx) })
	}
	if s.rooms != nil {
		s.running.Go(func() { s.rooms.Run(ctx) })
	}
	if s.streams != nil {
		s.streams.followers.Go(func() { s.queues.run(ctx) })
		s.running.Go(func() { s.streams.run(ctx) })
	}
	if s.events != nil {
		s.running.Go(func() { s.events.watchHistory(ctx) })
	}
}

// writers yields what has to get on for the server to be ready.
func (s *stores) writers(yield func(*progress)) {
	if s.ingest != nil {
		now := s.ingest.Stats()
		s.received.begun.Store(int64(now.Received))
		s.received.ended.Store(int64(now.Received) - now.Inflight)
		yield(&s.received)
	}
	if s.streams != nil {
		for _, o := range s.streams.open.all() {
			yield(&o.progress)
		}
		for _, o := range s.queues.open.all() {
			yield(&o.progress)
		}
		yield(&s.streams.open.waiting)
		yield(&s.streams.opened.waiting)
		yield(&s.queues.open.waiting)
	}
	if s.events != nil {
		yield(&s.events.progress)
		yield(&s.events.open.waiting)
	}
}

// abandon gives up what is accepted and not stored: whoever waits for it is answered
// that its outcome is unknown. Nothing more is accepted.
func (s *stores) abandon() {
	if s.ingest != nil {
		s.ingest.Abandon()
	}
	if s.rooms != nil {
		s.rooms.Abandon()
	}
	if s.streams != nil {
		s.streams.abandon()
		s.queues.abandon()
		s.events.abandon()
	}
}

// stop waits until everything accepted is stored, at most until ctx ends.
func (s *stores) stop(ctx context.Context) error {
	s.cancel()
	giveUp := context.AfterFunc(ctx, s.abandon)
	defer giveUp()
	if s.events != nil {
		s.events.close(ctx)
	}
	s.running.Wait()
	if s.ingest == nil {
		return nil
	}
	return lost(s.ingest.Stats())
}

// lost says what became of messages that were received and are not known to be
// stored.
func lost(done ingest.Stats) (err error) {
	if done.Failed > 0 {
		err = fmt.Errorf("%d messages were received and could not be stored", done.Failed)
	}
	if n := done.Inflight + int64(done.Abandoned); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages were received and given up, because PostgreSQL did not answer in time: they may be stored", n))
	}
	return err
}

func stored(messages []stream.Message, err error) ([]gateway.StoredMessage, error) {
	out := make([]gateway.StoredMessage, len(messages))
	for i, m := range messages {
		out[i] = gateway.StoredMessage{Position: m.Position, Payload: m.Payload}
	}
	return out, gatewayError(err)
}
