package gateway_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// fakeStreams are streams in memory.
type fakeStreams struct {
	engine.Streams // of what no test needs

	*commits
	state   sync.Mutex
	streams map[string]*fakeStream
	grown   chan struct{} // closed when anything changes
	fail    error         // of commits and reads
	page    int
	pulled  int         // pages that subscriptions have read
	given   int         // messages in them
	open    int         // subscriptions
	member  *fakeMember // of the next one who joins a group
}

type fakeStream struct {
	opts     engine.StreamOptions
	messages []engine.Message
	oldest   int64 // older positions were deleted
	groups   map[string]int64
	requests map[engine.RequestID]engine.Place
}

func newFakeStreams(t *testing.T, names ...string) *fakeStreams {
	f := &fakeStreams{commits: new(commits), streams: make(map[string]*fakeStream), grown: make(chan struct{}), page: 10}
	for _, name := range names {
		f.streams[name] = &fakeStream{groups: make(map[string]int64), opts: engine.StreamOptions{Keyed: true}}
	}
	return f
}

// change runs f with the state locked, and wakes all waiting goroutines.
func (f *fakeStreams) change(do func()) {
	f.state.Lock()
	defer f.state.Unlock()
	do()
	close(f.grown)
	f.grown = make(chan struct{})
}

func (f *fakeStreams) Publish(_ context.Context, stream string, as *engine.RequestID, messages []engine.Message, done func(engine.Place, error)) error {
	f.state.Lock()
	known := f.streams[stream] != nil
	f.state.Unlock()
	if !known {
		return engine.ErrNotFound
	}
	messages = slices.Clone(messages) // the caller keeps the slice
	f.later(func() {
		at := engine.Place{Partition: -1}
		var err error
		f.change(func() {
			s := f.streams[stream]
			if err = f.fail; err != nil {
				return
			}
			at.Position = int64(len(s.messages)) + 1
			if as != nil {
				if earlier, ok := s.requests[*as]; ok {
					at = earlier
					at.Duplicate = true
					return
				}
				if s.requests == nil {
					s.requests = make(map[engine.RequestID]engine.Place)
				}
				at.Count = len(messages)
				s.requests[*as] = at
			}
			for _, m := range messages {
				m.Position, m.Time = int64(len(s.messages))+1, time.Unix(1000+int64(len(s.messages)), 0)
				s.messages = append(s.messages, m)
			}
		})
		done(at, err)
	})
	return nil
}

func (f *fakeStreams) Subscribe(_ context.Context, stream string, from engine.Start) (engine.Subscription, error) {
	f.state.Lock()
	defer f.state.Unlock()
	s := f.streams[stream]
	if s == nil {
		return nil, engine.ErrNotFound
	}
	at := from.After
	switch {
	case from.Group != "":
		at = s.groups[from.Group]
	case !from.At.IsZero():
		at = max(0, from.At.Unix()-1000)
	case from.End:
		at = int64(len(s.messages))
	}
	f.open++
	return &fakeSubscription{f: f, stream: stream, at: at}, nil
}

func (f *fakeStreams) Commit(ctx context.Context, stream, group string, position int64) (offset int64, err error) {
	waited := f.wait(ctx, func() { offset, err = f.commitGroup(stream, group, position) })
	if waited != nil {
		return 0, waited
	}
	return offset, err
}

func (f *fakeStreams) commitGroup(stream, group string, position int64) (int64, error) {
	f.state.Lock()
	defer f.state.Unlock()
	s := f.streams[stream]
	if s == nil {
		return 0, engine.ErrNotFound
	}
	s.groups[group] = max(s.groups[group], position)
	return s.groups[group], f.fail
}

func (f *fakeStreams) CommitLater(_ context.Context, stream, group string, position int64) error {
	_, err := f.commitGroup(stream, group, position)
	return err
}

func (f *fakeStreams) Read(_ context.Context, stream string, key *string, after int64, limit int) (out []engine.Message, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	s := f.streams[stream]
	switch {
	case s == nil:
		return nil, engine.ErrNotFound
	case key != nil && !s.opts.Keyed:
		return nil, engine.ErrNotKeyed
	case after < s.oldest-1:
		return nil, &engine.TooOldError{Oldest: s.oldest}
	}
	for _, m := range s.messages[min(after, int64(len(s.messages))):] {
		if (key == nil || m.Key == *key) && len(out) < limit {
			out = append(out, m)
		}
	}
	return out, f.fail
}

type fakeSubscription struct {
	f      *fakeStreams
	stream string
	at     int64
}

func (s *fakeSubscription) Position() int64 { return s.at }

func (s *fakeSubscription) Next(ctx context.Context, most int) ([]engine.Message, error) {
	for {
		if page, err := s.TryNext(ctx, most); len(page) > 0 || err != nil {
			return page, err
		}
		if err := s.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Wait implements engine.TrySubscription.
func (s *fakeSubscription) Wait(ctx context.Context) error {
	for {
		s.f.state.Lock()
		grown, log := s.f.grown, s.f.streams[s.stream]
		ready := log == nil || s.at < log.oldest-1 || s.at < int64(len(log.messages))
		s.f.state.Unlock()
		if ready {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TryNext implements engine.TrySubscription.
func (s *fakeSubscription) TryNext(_ context.Context, most int) ([]engine.Message, error) {
	s.f.state.Lock()
	defer s.f.state.Unlock()
	log := s.f.streams[s.stream]
	switch {
	case log == nil:
		return nil, engine.ErrNotFound
	case s.at < log.oldest-1:
		return nil, &engine.TooOldError{Oldest: log.oldest}
	case s.at >= int64(len(log.messages)):
		return nil, nil
	}
	page := slices.Clone(log.messages[s.at:min(int(s.at)+min(s.f.page, most), len(log.messages))])
	s.at += int64(len(page))
	s.f.pulled++
	s.f.given += len(page)
	return page, nil
}

func (s *fakeSubscription) Close() {
	s.f.state.Lock()
	defer s.f.state.Unlock()
	s.f.open--
}

func (f *fakeStreams) Create(_ context.Context, name string, opts *engine.StreamOptions) (made engine.StreamOptions, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	if opts != nil {
		made = *opts
	}
	if s := f.streams[name]; s == nil {
		f.streams[name] = &fakeStream{groups: make(map[string]int64), opts: made}
	} else if opts != nil && s.opts != *opts {
		return made, engine.ErrExists
	} else {
		made = s.opts
	}
	return made, f.fail
}

func (f *fakeStreams) List(context.Context) (out []engine.StreamInfo, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	for name, s := range f.streams {
		out = append(out, engine.StreamInfo{Name: name, Keyed: s.opts.Keyed})
	}
	return out, f.fail
}

func (f *fakeStreams) Info(_ context.Context, name string) (engine.StreamDetails, error) {
	f.state.Lock()
	defer f.state.Unlock()
	s := f.streams[name]
	if s == nil {
		return engine.StreamDetails{}, engine.ErrNotFound
	}
	d := engine.StreamDetails{StreamInfo: engine.StreamInfo{Name: name, Keyed: s.opts.Keyed, Partitions: s.opts.Partitions}, Head: int64(len(s.messages))}
	return d, f.fail
}

// Retention of the stream jobs, which is that of a queue, does not exist.
func (f *fakeStreams) Retention(_ context.Context, name string) (engine.Retention, error) {
	if name == "jobs" {
		return engine.Retention{}, engine.ErrQueueStream
	}
	_, err := f.Info(context.Background(), name)
	return engine.Retention{}, err
}

func (f *fakeStreams) Groups(_ context.Context, name, after string, limit int) (out []engine.GroupInfo, err error) {
	f.state.Lock()
	defer f.state.Unlock()
	s := f.streams[name]
	if s == nil {
		return nil, engine.ErrNotFound
	}
	for _, group := range slices.Sorted(maps.Keys(s.groups)) {
		if group > after && len(out) < limit {
			out = append(out, engine.GroupInfo{Name: group, Offset: s.groups[group], Lag: int64(len(s.messages)) - s.groups[group]})
		}
	}
	return out, f.fail
}

func (f *fakeStreams) Drop(_ context.Context, name string) (err error) {
	f.change(func() {
		if f.streams[name] == nil {
			err = engine.ErrNotFound
		}
		delete(f.streams, name)
	})
	return err
}

// stored is how many messages a stream has.
func (f *fakeStreams) stored(name string) int {
	return locked(f, func() int { return len(f.streams[name].messages) })
}

// locked calls f with the state locked.
func locked[T any](f *fakeStreams, look func() T) T {
	f.state.Lock()
	defer f.state.Unlock()
	return look()
}

// fill adds messages of a size to a stream.
func fill(streams *fakeStreams, name string, count, size int) {
	payload := bytes.Repeat([]byte("x"), size)
	streams.change(func() {
		s := streams.streams[name]
		for range count {
			s.messages = append(s.messages, engine.Message{Position: int64(len(s.messages)) + 1, Payload: payload})
		}
	})
}
