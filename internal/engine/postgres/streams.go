package postgres

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// streams gives the gateway the streams of one database.
type streams struct {
	pool   *pgxpool.Pool
	reader *standby.Reader // nil without
	log    *slog.Logger
	finder *finder
	hub    *stream.Hub
	groups *stream.Groups

	work    context.Context // ends with stop: no appender begins any more
	stop    context.CancelFunc
	running sync.WaitGroup // appenders

	followers sync.WaitGroup // of hub, which ends after them

	open    *registry[*openStream]
	maxOpen int                      // streams, before idle ones are closed sooner
	closing sync.Mutex               // of closeIdle
	ending  sync.Map                 // id of a stream to the done of the appender that was forgotten last
	opened  *registry[*stream.Group] // by groupKey
}

// groupKey names a group of a stream; no name has a NUL.
func groupKey(stream, group string) string { return stream + "\x00" + group }

// inFamily tells the keys of the groups of a stream and of its partitions.
func inFamily(stream string) func(key string) bool {
	return func(key string) bool {
		return strings.HasPrefix(key, stream+"\x00") || strings.HasPrefix(key, stream+"/")
	}
}

// named tells one name.
func named(want string) func(name string) bool {
	return func(name string) bool { return name == want }
}

const (
	// groupAge is for how long a group that was looked up counts as there:
	// somebody may drop it, and make another of that name.
	groupAge = 10 * time.Second
	// maxGroups bounds how many are remembered.
	maxGroups = 10_000
	// ownersEvery is how often it is looked whether open streams hold a queue's
	// messages by now, or are not used any more.
	ownersEvery = 5 * time.Second
	// idleAfter is for how long a stream stays open to which nobody publishes, and
	// idleAfterMany is that while more than maxOpen are.
	idleAfter     = 5 * time.Minute
	idleAfterMany = ownersEvery
	// OpenStreamBytes is about what an open stream takes, in bytes.
	OpenStreamBytes = 4 << 10
)

// openStream is a stream that is published to.
type openStream struct {
	*stream.Stream
	appender *stream.PartitionedAppender
	started  chan struct{} // closed when the appender has been started; nil if that was at once
	stopping sync.Once
	done     chan struct{}              // closed when the appender has ended
	before   atomic.Pointer[openStream] // that has to end first, or nil
	progress progress
}

func newStreams(pool *pgxpool.Pool, reader *standby.Reader, log *slog.Logger) *streams {
	s := &streams{
		pool: pool, reader: reader, log: log, finder: &finder{pool: pool},
		maxOpen: math.MaxInt,
		hub:     stream.NewHub(pool, stream.HubConfig{Announce: true, Standby: reader, Log: log}),
	}
	s.groups = stream.NewGroups(pool, stream.GroupsConfig{OnGone: s.groupGone, Log: log})
	s.work, s.stop = context.WithCancel(context.Background())
	s.open = newRegistry(registryConfig[*openStream]{Open: s.lookup, Start: s.start, MaxOpening: maxFound, ErrClosed: stream.ErrClosed, Log: log})
	s.opened = newRegistry(registryConfig[*stream.Group]{
		Open: s.openGroup, MaxAge: groupAge, MaxOpen: maxGroups, ErrClosed: stream.ErrClosed, Log: log,
	})
	return s
}

// run works until ctx ends and what was accepted by then is written.
func (s *streams) run(ctx context.Context) {
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	var readers sync.WaitGroup
	readers.Go(func() { s.hub.Run(reading) })
	readers.Go(func() { s.groups.Run(reading) })
	readers.Go(func() { s.watchOwners(reading) })
	readers.Go(func() { stream.NewRetentionWorker(s.pool, stream.RetentionWorkerConfig{Log: s.log}).Run(reading) })
	<-ctx.Done()
	s.stop()
	s.open.close()
	for _, o := range s.open.all() {
		s.end(o)
	}
	s.running.Wait()
	s.followers.Wait()
	stopReading()
	readers.Wait()
}

// abandon gives up what is accepted and not committed.
func (s *streams) abandon() {
	for _, o := range s.open.all() {
		o.abandon()
	}
	s.ending.Range(func(_, o any) bool {
		o.(*openStream).abandon()
		return true
	})
}

// abandon gives up what the stream has accepted, and what those have that it waits for.
func (o *openStream) abandon() {
	for ; o != nil; o = o.before.Load() {
		o.appender.Abandon()
	}
}

// lookup finds a stream to be published to.
func (s *streams) lookup(ctx context.Context, name string) (*openStream, error) {
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return nil, err
	}
	o := &openStream{Stream: found, done: make(chan struct{})}
	o.appender = stream.NewPartitionedAppender(s.pool, found, stream.PartitionedConfig{
		Appender: stream.AppenderConfig{Hub: s.hub, Writer: stream.WriterConfig{Log: s.log}},
	})
	return o, nil
}

// Publish implements engine.Streams.
func (s *streams) Publish(ctx context.Context, name string, as *engine.RequestID, messages []engine.Message, done func(engine.Place, error)) error {
	out := make([]stream.Message, len(messages))
	for i, m := range messages {
		out[i] = stream.Message{Key: m.Key, Headers: m.Headers, Payload: m.Payload}
	}
	for {
		o, err := s.open.get(ctx, name)
		if err != nil {
			return engineError(err)
		}
		err = s.submit(ctx, o, as, out, done)
		if !errors.Is(err, stream.ErrClosed) || s.work.Err() != nil {
			return engineError(err)
		} // else it was forgotten in between, and took nothing
	}
}

// submit has messages stored in the stream that is open, and done called.
func (s *streams) submit(ctx context.Context, o *openStream, as *engine.RequestID, out []stream.Message, done func(engine.Place, error)) (err error) {
	o.progress.begin()
	answer := func(at stream.Appended, err error) {
		s.published(o, engine.Place{Partition: at.Partition, Position: at.First, Count: at.Count(), Duplicate: at.Duplicate}, err, done)
	}
	if as != nil {
		err = o.appender.SubmitAs(ctx, stream.RequestID{Client: as.Client, Sequence: as.Sequence}, out, answer)
	} else {
		err = o.appender.Submit(ctx, out, answer)
	}
	if err != nil { // then published is not called
		o.progress.end()
	}
	return err
}

// published answers a call of Publish.
func (s *streams) published(o *openStream, at engine.Place, err error, done func(engine.Place, error)) {
	o.progress.end()
	if errors.Is(err, stream.ErrNotFound) {
		s.forget(o)
	}
	if o.Partitions() == 0 {
		at.Partition = -1
	}
	done(at, engineError(err))
}

// Subscribe implements engine.Streams.
func (s *streams) Subscribe(ctx context.Context, name string, from engine.Start) (engine.Subscription, error) {
	var found *stream.Stream
	var err error
	if from.Group != "" { // which has an offset in the stream
		found, err = s.finder.find(ctx, name)
	} else {
		found, err = stream.Lookup(ctx, s.pool, name)
	}
	if err != nil {
		return nil, engineError(err)
	}
	var start stream.Start // the oldest message that is kept
	switch {
	case from.Group != "":
		g, err := s.groups.Open(ctx, found, from.Group, stream.GroupOptions{})
		if err != nil {
			return nil, engineError(err)
		}
		sub, err := g.Subscribe(ctx, s.hub)
		return subscription{sub}, engineError(err)
	case !from.At.IsZero():
		start = stream.AtTime(from.At)
	case from.End:
		start = stream.AtEnd()
	case from.After != 0:
		start = stream.After(from.After)
	}
	sub, err := s.hub.Subscribe(ctx, found, start)
	return subscription{sub}, engineError(err)
}

// openGroup opens a group of a stream; it is made if there is none.
func (s *streams) openGroup(ctx context.Context, key string) (*stream.Group, error) {
	name, group, _ := strings.Cut(key, "\x00")
	found, err := s.finder.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return s.groups.Open(ctx, found, group, stream.GroupOptions{})
}

// Commit implements engine.Streams.
func (s *streams) Commit(ctx context.Context, name, group string, position int64) (int64, error) {
	key := groupKey(name, group)
	for {
		_, known := s.opened.peek(key) // from before, so that it may be gone
		g, err := s.opened.get(ctx, key)
		if err != nil {
			return 0, engineError(err)
		}
		offset, err := g.Commit(ctx, position)
		if !errors.Is(err, stream.ErrNotFound) {
			return offset, engineError(err)
		}
		if s.opened.forget(key, g); !known {
			return 0, engineError(err)
		} // else there may be another of its name by now
	}
}

// groupGone is told of a group that is not there any more: the next commit looks its name up.
func (s *streams) groupGone(id int32) {
	for _, g := range s.opened.all() {
		if g.ID() == id {
			s.opened.forget(groupKey(g.Stream().Name(), g.Name()), g)
		}
	}
}

// CommitLater implements engine.Streams. What is for a group that another node has dropped is
// lost: whether it was meant for the one that has its name now, nobody knows.
func (s *streams) CommitLater(ctx context.Context, name, group string, position int64) error {
	g, err := s.opened.get(ctx, groupKey(name, group))
	if err != nil {
		return engineError(err)
	}
	g.CommitLater(position)
	return nil
}

// subscription is a stream.Subscription with the engine's messages.
type subscription struct{ *stream.Subscription }

// Next implements engine.Subscription.
func (s subscription) Next(ctx context.Context, most int) ([]engine.Message, error) {
	page, err := s.NextUpTo(ctx, most)
	return engineMessages(page), engineError(err)
}

func engineMessages(page []stream.Message) []engine.Message {
	out := make([]engine.Message, len(page))
	for i := range page {
		out[i] = engineMessage(&page[i])
	}
	return out
}

func engineMessage(m *stream.Message) engine.Message {
	return engine.Message{Position: m.Position, Time: m.Time, Key: m.Key, Headers: m.Headers, Payload: m.Payload}
}

// readBytes bounds what one Read holds, beside its last message.
const readBytes = 4 << 20

// Read implements engine.Streams.
func (s *streams) Read(ctx context.Context, name string, key *string, after int64, limit int) ([]engine.Message, error) {
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, engineError(err)
	}
	var page []stream.Message
	if key != nil {
		page, err = found.ReadKeyPage(ctx, *key, after, math.MaxInt64, limit, readBytes)
	} else {
		page, err = found.WithStandby(s.reader).ReadPage(ctx, after, limit, readBytes)
	}
	return engineMessages(page), engineError(err)
}
