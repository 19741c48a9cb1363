package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/gateway"
	"github.com/tidewire/tidewire/stream"
)

// streamStore gives the gateway the streams of one database.
type streamStore struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	hub    *stream.Hub
	groups *stream.Groups

	work    context.Context // of the appenders; ends with stop
	stop    context.CancelFunc
	running sync.WaitGroup

	followers sync.WaitGroup // of hub, which ends after them

	mu    sync.Mutex
	open  map[string]*openStream
	known map[groupName]knownGroup
}

// groupName is a group of a stream.
type groupName struct{ stream, group string }

// knownGroup was looked up at that time.
type knownGroup struct {
	*stream.Group
	at time.Time
}

const (
	// groupAge is for how long a group that was looked up counts as there:
	// somebody may drop it, and make another of that name.
	groupAge = 10 * time.Second
	// maxKnown bounds how many are remembered.
	maxKnown = 10_000
)

// openStream is a stream that is published to.
type openStream struct {
	*stream.Stream
	appender *stream.PartitionedAppender
	stop     context.CancelFunc
}

func newStreamStore(pool *pgxpool.Pool, log *slog.Logger) *streamStore {
	s := &streamStore{
		pool: pool, log: log, open: make(map[string]*openStream), known: make(map[groupName]knownGroup),
		hub:    stream.NewHub(pool, stream.HubConfig{Announce: true, Log: log}),
		groups: stream.NewGroups(pool, stream.GroupsConfig{Log: log}),
	}
	s.work, s.stop = context.WithCancel(context.Background())
	return s
}

// run works until ctx ends and what was accepted by then is written.
func (s *streamStore) run(ctx context.Context) {
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	var readers sync.WaitGroup
	readers.Go(func() { s.hub.Run(reading) })
	readers.Go(func() { s.groups.Run(reading) })
	readers.Go(func() { stream.NewKeeper(s.pool, stream.KeeperConfig{Log: s.log}).Run(reading) })
	<-ctx.Done()
	s.mu.Lock() // no appender begins any more
	s.stop()
	s.mu.Unlock()
	s.running.Wait()
	s.followers.Wait()
	stopReading()
	readers.Wait()
}

// abandon gives up what is accepted and not committed.
func (s *streamStore) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		o.appender.Abandon()
	}
}

// appenderOf returns the appender of a stream, which lives until the stream is
// found to be gone.
func (s *streamStore) appenderOf(ctx context.Context, name string) (*openStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.open[name]; o != nil {
		return o, nil
	}
	if s.work.Err() != nil {
		return nil, stream.ErrClosed
	}
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, err
	}
	o := &openStream{Stream: found}
	o.appender = stream.NewPartitionedAppender(s.pool, found, stream.PartitionedConfig{
		OnCommit: func(partition int, _ int64) { s.hub.Notify(found.Partition(partition)) },
		Appender: stream.AppenderConfig{Writer: stream.WriterConfig{Log: s.log}},
	})
	ctx, o.stop = context.WithCancel(s.work)
	s.running.Go(func() { o.appender.Run(ctx) })
	s.open[name] = o
	return o, nil
}

// forget ends the appender of a stream that is gone.
func (s *streamStore) forget(o *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[o.Name()] == o {
		delete(s.open, o.Name())
	}
	o.stop()
}

// Publish implements gateway.StreamStore.
func (s *streamStore) Publish(ctx context.Context, name string, as *gateway.Producer, messages []gateway.Message, done func(gateway.Place, error)) error {
	o, err := s.appenderOf(ctx, name)
	if err != nil {
		return gatewayError(err)
	}
	out := make([]stream.Message, len(messages))
	for i, m := range messages {
		out[i] = stream.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload}
	}
	answer := func(first stream.Place, err error) {
		if errors.Is(err, stream.ErrNotFound) {
			s.forget(o)
		}
		place := gateway.Place{Partition: -1, Position: first.Position}
		if o.Partitions() > 0 {
			place.Partition = first.Partition
		}
		done(place, gatewayError(err))
	}
	if as != nil {
		return gatewayError(o.appender.SubmitAs(ctx, stream.Producer{ID: as.ID, Sequence: as.Sequence}, out, answer))
	}
	return gatewayError(o.appender.Submit(ctx, out, answer))
}

// Subscribe implements gateway.StreamStore.
func (s *streamStore) Subscribe(ctx context.Context, name string, from gateway.Start) (gateway.Subscription, error) {
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, gatewayError(err)
	}
	var start stream.Start // the oldest message that is kept
	switch {
	case from.Group != "":
		g, err := s.groups.Open(ctx, found, from.Group, stream.GroupOptions{})
		if err != nil {
			return nil, gatewayError(err)
		}
		sub, err := g.Subscribe(ctx, s.hub)
		return subscription{sub}, gatewayError(err)
	case !from.At.IsZero():
		start = stream.Since(from.At)
	case from.End:
		start = stream.AtEnd()
	case from.After != 0:
		start = stream.After(from.After)
	}
	sub, err := s.hub.Subscribe(ctx, found, start)
	return subscription{sub}, gatewayError(err)
}

// group returns a group, which is made if there is none.
func (s *streamStore) group(ctx context.Context, name groupName) (*stream.Group, error) {
	s.mu.Lock()
	g, ok := s.known[name]
	s.mu.Unlock()
	if ok && time.Since(g.at) < groupAge {
		return g.Group, nil
	}
	found, err := stream.Lookup(ctx, s.pool, name.stream)
	if err != nil {
		return nil, err
	}
	opened, err := s.groups.Open(ctx, found, name.group, stream.GroupOptions{})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[name] = knownGroup{opened, time.Now()}
	return opened, nil
}

// Commit implements gateway.StreamStore.
func (s *streamStore) Commit(ctx context.Context, name, group string, position int64) (int64, error) {
	key := groupName{name, group}
	g, err := s.group(ctx, key)
	if err != nil {
		return 0, gatewayError(err)
	}
	offset, err := g.Commit(ctx, position)
	if errors.Is(err, stream.ErrNotFound) {
		s.mu.Lock()
		delete(s.known, key)
		s.mu.Unlock()
	}
	return offset, gatewayError(err)
}

// CommitLater implements gateway.StreamStore.
func (s *streamStore) CommitLater(ctx context.Context, name, group string, position int64) error {
	g, err := s.group(ctx, groupName{name, group})
	if err != nil {
		return gatewayError(err)
	}
	g.CommitLater(position)
	return nil
}

// subscription is a stream.Subscription with the gateway's messages.
type subscription struct{ *stream.Subscription }

// Next implements gateway.Subscription.
func (s subscription) Next(ctx context.Context) ([]gateway.Message, error) {
	page, err := s.Subscription.Next(ctx)
	return gatewayMessages(page), gatewayError(err)
}

func gatewayMessages(page []stream.Message) []gateway.Message {
	out := make([]gateway.Message, len(page))
	for i := range page {
		out[i] = gatewayMessage(&page[i])
	}
	return out
}

func gatewayMessage(m *stream.Message) gateway.Message {
	return gateway.Message{Position: m.Position, Time: m.Time, Key: m.Key, Headers: m.Headers, Payload: m.Payload}
}

// readBytes bounds what one Read holds, beside its last message.
const readBytes = 4 << 20

// Read implements gateway.StreamReader.
func (s *streamStore) Read(ctx context.Context, name string, key *string, after int64, limit int) ([]gateway.Message, error) {
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, gatewayError(err)
	}
	var page []stream.Message
	if key != nil {
		page, err = found.ReadKey(ctx, *key, after, math.MaxInt64, limit)
	} else {
		page, err = found.Read(ctx, after, limit)
	}
	held := 0
	for i := range page {
		if held += len(page[i].Payload) + len(page[i].Headers); held > readBytes {
			page = page[:i+1]
			break
		}
	}
	return gatewayMessages(page), gatewayError(err)
}

// streamAdmin makes and drops the streams.
type streamAdmin struct{ pool *pgxpool.Pool }

// Create implements gateway.StreamAdmin.
func (a streamAdmin) Create(ctx context.Context, name string, opts gateway.StreamOptions) error {
	_, err := stream.Ensure(ctx, a.pool, name, stream.Options{Keyed: opts.Keyed, Partitions: opts.Partitions})
	return gatewayError(err)
}

// List implements gateway.StreamAdmin.
func (a streamAdmin) List(ctx context.Context) ([]gateway.StreamInfo, error) {
	all, err := stream.List(ctx, a.pool)
	out := make([]gateway.StreamInfo, len(all))
	for i, s := range all {
		out[i] = streamInfo(s)
	}
	return out, gatewayError(err)
}

func streamInfo(s *stream.Stream) gateway.StreamInfo {
	return gateway.StreamInfo{Name: s.Name(), Keyed: s.Keyed(), Partitions: s.Partitions(), Created: s.CreatedAt()}
}

// Info implements gateway.StreamAdmin.
func (a streamAdmin) Info(ctx context.Context, name string) (d gateway.StreamDetails, err error) {
	s, err := stream.Lookup(ctx, a.pool, name)
	if err != nil {
		return d, gatewayError(err)
	}
	d.StreamInfo = streamInfo(s)
	info, err := s.Info(ctx)
	if err != nil {
		return d, gatewayError(err)
	}
	d.Head = info.Head
	groups, err := stream.ListGroups(ctx, a.pool, s)
	d.Groups = make([]gateway.GroupInfo, len(groups))
	for i, g := range groups {
		d.Groups[i] = gateway.GroupInfo{Name: g.Name, Offset: g.Offset, Lag: g.Lag}
	}
	return d, gatewayError(err)
}

// Drop implements gateway.StreamAdmin.
func (a streamAdmin) Drop(ctx context.Context, name string) error {
	return gatewayError(stream.Drop(ctx, a.pool, name))
}

// gatewayError says what the gateway may tell of an error of package stream.
func gatewayError(err error) error {
	if old, ok := errors.AsType[*stream.TooOldError](err); ok {
		return &gateway.TooOldError{Oldest: old.Oldest}
	}
	for _, e := range []struct{ from, to error }{
		{stream.ErrNotFound, gateway.ErrNotFound},
		{stream.ErrInvalid, gateway.ErrInvalid},
		{stream.ErrOptions, gateway.ErrExists},
		{stream.ErrNotKeyed, gateway.ErrNotKeyed},
		{stream.ErrAbandoned, gateway.ErrOutcomeUnknown},
		{stream.ErrSequenceTooOld, gateway.ErrSequenceTooOld},
		{stream.ErrManyPartitions, gateway.ErrManyPartitions},
		{stream.ErrPartitioned, gateway.ErrPartitioned},
		{stream.ErrPartition, gateway.ErrPartitioned},
	} {
		if errors.Is(err, e.from) {
			return fmt.Errorf("%w: %w", e.to, err)
		}
	}
	return err
}
