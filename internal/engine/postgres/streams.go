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

// streams is engine.Streams on the streams of one database.
type streams struct {
	pool   *pgxpool.Pool
	reader *standby.Reader // nil without a standby
	log    *slog.Logger
	finder *finder
	hub    *stream.Hub
	groups *stream.Groups

	maxMessage int // see Config

	work    context.Context // ends with stop: no appender starts after that
	stop    context.CancelFunc
	running sync.WaitGroup // appenders

	followers sync.WaitGroup // users of hub, which ends after them
	joining   sync.Mutex     // held while a member joins followers
	lease     time.Duration  // of members; 0 is the default

	open    *registry[*openStream]
	maxOpen int                      // open streams above which idle ones are closed sooner
	closing sync.Mutex               // held by closeIdle
	ending  sync.Map                 // id of a stream to the *openStream forgotten last, while it ends
	opened  *registry[*stream.Group] // by groupKey
}

// groupKey is the key of a group of a stream; no name contains a NUL.
func groupKey(stream, group string) string { return stream + "\x00" + group }

// inFamily matches the keys of the groups of a stream and of its partitions.
func inFamily(stream string) func(key string) bool {
	return func(key string) bool {
		return strings.HasPrefix(key, stream+"\x00") || strings.HasPrefix(key, stream+"/")
	}
}

// named matches one name.
func named(want string) func(name string) bool {
	return func(name string) bool { return name == want }
}

const (
	// groupAge is how long a group that was looked up is cached: somebody may
	// drop it, and create another of that name.
	groupAge = 10 * time.Second
	// maxGroups bounds how many groups are cached.
	maxGroups = 10_000
	// ownersEvery is how often open streams are checked: whether they hold a
	// queue's messages by now, or are idle.
	ownersEvery = 5 * time.Second
	// idleAfter is how long a stream stays open without a publish. idleAfterMany
	// applies while more than maxOpen streams are open.
	idleAfter     = 5 * time.Minute
	idleAfterMany = ownersEvery
	// OpenStreamBytes is the approximate memory of an open stream, in bytes.
	OpenStreamBytes = 4 << 10
)

// openStream is a stream with a running appender.
type openStream struct {
	*stream.Stream
	appender *stream.PartitionedAppender
	started  chan struct{} // closed when the appender has been started; nil if it was started at once
	stopping sync.Once
	done     chan struct{}              // closed when the appender has ended
	before   atomic.Pointer[openStream] // must end before this one starts; or nil
	progress progress
}

func newStreams(cfg Config) *streams {
	pool, log := cfg.Pool, cfg.Log
	s := &streams{
		pool: pool, reader: cfg.Standby, log: log, finder: &finder{pool: pool},
		maxOpen: math.MaxInt, maxMessage: cfg.MaxMessage,
		hub: newHub(cfg), lease: cfg.GroupLease,
	}
	s.groups = stream.NewGroups(pool, stream.GroupsConfig{OnGone: s.groupGone, Log: log})
	s.work, s.stop = context.WithCancel(context.Background())
	s.open = newRegistry(registryConfig[*openStream]{Open: s.lookup, Start: s.start, MaxOpening: maxFound, ErrClosed: stream.ErrClosed, Log: log})
	s.opened = newRegistry(registryConfig[*stream.Group]{
		Open: s.openGroup, MaxAge: groupAge, MaxOpen: maxGroups, ErrClosed: stream.ErrClosed, Log: log,
	})
	return s
}

// run runs until ctx ends and everything accepted by then is written.
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
	s.awaitFollowers()
	stopReading()
	readers.Wait()
}

// abandon gives up accepted messages that are not committed.
func (s *streams) abandon() {
	for _, o := range s.open.all() {
		o.abandon()
	}
	s.ending.Range(func(_, o any) bool {
		o.(*openStream).abandon()
		return true
	})
}

// abandon gives up the accepted messages of the stream, and of those that must end
// before it.
func (o *openStream) abandon() {
	for ; o != nil; o = o.before.Load() {
		o.appender.Abandon()
	}
}

// lookup finds a stream and creates its appender.
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
	lent := streamMessages.lend(len(messages))
	defer streamMessages.giveBack(lent)
	out := *lent
	for i := range messages {
		m := &messages[i]
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
		} // else it was closed in between, and accepted nothing
	}
}

// submit submits messages to an open stream; the answer goes to done.
func (s *streams) submit(ctx context.Context, o *openStream, as *engine.RequestID, out []stream.Message, done func(engine.Place, error)) (err error) {
	o.progress.begin()
	p := s.publishing(o, done)
	if as != nil {
		err = o.appender.SubmitAs(ctx, stream.RequestID{Client: as.Client, Sequence: as.Sequence}, out, p.done)
	} else {
		err = o.appender.Submit(ctx, out, p.done)
	}
	if err != nil { // then done is not called
		o.progress.end()
		p.recycle()
	}
	return err
}

// Subscribe implements engine.Streams.
func (s *streams) Subscribe(ctx context.Context, name string, from engine.Start) (engine.Subscription, error) {
	var found *stream.Stream
	var err error
	if from.Group != "" { // a queue's stream has no groups
		found, err = s.finder.find(ctx, name)
	} else {
		found, err = stream.Lookup(ctx, s.pool, name)
	}
	if err != nil {
		return nil, engineError(err)
	}
	if from.Group != "" {
		g, err := s.groups.Open(ctx, found, from.Group, stream.GroupOptions{})
		if err != nil {
			return nil, engineError(err)
		}
		sub, err := g.Subscribe(ctx, s.hub)
		return subscription{sub}, engineError(err)
	}
	sub, err := s.hub.Subscribe(ctx, found, streamStart(from))
	return subscription{sub}, engineError(err)
}

// openGroup opens a group of a stream, and creates it if it does not exist.
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
		_, known := s.opened.peek(key) // a cached group may have been dropped
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
		} // else another group may have the name by now
	}
}

// groupGone is called after a group was found to be dropped: the next commit looks its name
// up.
func (s *streams) groupGone(id int32) {
	for _, g := range s.opened.all() {
		if g.ID() == id {
			s.opened.forget(groupKey(g.Stream().Name(), g.Name()), g)
		}
	}
}

// CommitLater implements engine.Streams. A commit to a group that another node has dropped is
// lost: nobody knows whether it was meant for the group that has the name now.
func (s *streams) CommitLater(ctx context.Context, name, group string, position int64) error {
	g, err := s.opened.get(ctx, groupKey(name, group))
	if err != nil {
		return engineError(err)
	}
	g.CommitLater(position)
	return nil
}

// subscription is engine.Subscription on a stream.Subscription.
type subscription struct{ *stream.Subscription }

// Next implements engine.Subscription.
func (s subscription) Next(ctx context.Context, most int) ([]engine.Message, error) {
	page, err := s.NextUpTo(ctx, most)
	return engineMessages(page), engineError(err)
}

// Wait implements engine.TrySubscription.
func (s subscription) Wait(ctx context.Context) error { return engineError(s.Subscription.Wait(ctx)) }

// TryNext implements engine.TrySubscription.
func (s subscription) TryNext(ctx context.Context, most int) ([]engine.Message, error) {
	page, err := s.Subscription.TryNext(ctx, most)
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

// readBytes bounds the bytes that one Read holds, unless its first message is larger.
const readBytes = 1 << 20

// Read implements engine.Streams.
func (s *streams) Read(ctx context.Context, name string, key *string, after int64, limit int) ([]engine.Message, error) {
	found, err := stream.Lookup(ctx, s.pool, name)
	if err != nil {
		return nil, engineError(err)
	}
	found = found.WithMaxMessage(s.maxMessage)
	var page []stream.Message
	if key != nil {
		page, err = found.ReadKeyPage(ctx, *key, after, math.MaxInt64, limit, readBytes)
	} else {
		page, err = found.WithStandby(s.reader).ReadPage(ctx, after, limit, readBytes)
	}
	return engineMessages(page), engineError(err)
}
