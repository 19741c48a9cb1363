package postgres

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// start starts the appender of a stream, after the previous appender of that stream has
// written everything it accepted.
func (s *streams) start(o *openStream) {
	s.running.Add(1)
	before, waits := s.ending.Load(o.ID())
	if !waits {
		o.appender.Start()
		return
	}
	o.before.Store(before.(*openStream))
	o.started = make(chan struct{})
	go func() {
		<-before.(*openStream).done
		o.before.Store(nil)
		o.appender.Start()
		close(o.started)
	}()
}

// end stops the appender of a stream, without waiting for that.
func (s *streams) end(o *openStream) {
	o.stopping.Do(func() {
		go func() {
			defer s.running.Done()
			if o.started != nil {
				<-o.started
			}
			o.appender.Stop()
			close(o.done)
			s.ending.CompareAndDelete(o.ID(), o)
		}()
	})
}

// made is called after a stream was created: its name is looked up again, also if
// an older stream of that name is open, which another node has dropped.
func (s *streams) made(found *stream.Stream) {
	if o, open := s.open.peek(found.Name()); open && o.ID() != found.ID() {
		s.dropped(o.Stream)
	}
	s.open.changed(named(found.Name()))
	s.opened.changed(inFamily(found.Name()))
}

// dropped is called after a stream was dropped: another of its name may exist at
// once.
func (s *streams) dropped(gone *stream.Stream) {
	s.open.changed(named(gone.Name()))
	for _, o := range s.open.all() {
		if o.ID() == gone.ID() {
			s.forget(o)
		}
	}
	s.opened.remove(inFamily(gone.Name()))
}

// becameQueue ends the appenders of streams that hold a queue's messages now.
// If one does not, the next publish opens it again.
func (s *streams) becameQueue(name string) {
	for _, o := range s.open.remove(func(open string) bool { return open == name || strings.HasPrefix(open, name+"/") }) {
		s.forget(o)
	}
	s.opened.remove(inFamily(name))
}

// watchOwners periodically ends the appenders of streams that hold a queue's
// messages by now, because another server may have created the queue, and closes
// idle streams. It runs until ctx ends.
func (s *streams) watchOwners(ctx context.Context) {
	tick := time.NewTicker(ownersEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := s.checkOwners(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("cannot check which open streams belong to queues; trying again", "error", err)
		}
		s.closeIdle(time.Now(), s.idleAfter())
	}
}

// idleAfter returns how long a stream may be idle. It is shorter while many are open, to
// save memory.
func (s *streams) idleAfter() time.Duration {
	if s.open.len() > s.maxOpen {
		return idleAfterMany
	}
	return idleAfter
}

// closeIdle ends the appenders that have been idle for that long. The next
// publish opens the stream again.
func (s *streams) closeIdle(now time.Time, after time.Duration) {
	s.closing.Lock()
	defer s.closing.Unlock()
	for _, o := range s.open.all() {
		if o.progress.idle(now) >= after {
			s.forget(o)
		}
	}
}

// checkOwners checks once, with one query for all open streams.
func (s *streams) checkOwners(ctx context.Context) error {
	open := make(map[string]*openStream)
	for _, o := range s.open.all() {
		open[o.Name()] = o
	}
	if len(open) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ownersEvery)
	defer cancel()
	owned, err := queue.OwnedStreams(ctx, s.pool, slices.Collect(maps.Keys(open)))
	for _, name := range owned {
		s.forget(open[name])
		s.opened.remove(inFamily(name))
	}
	return err
}

// forget removes a dropped or idle stream from the registry and ends its
// appender.
func (s *streams) forget(o *openStream) {
	s.ending.Store(o.ID(), o)
	select {
	case <-o.done: // it has ended already
		s.ending.CompareAndDelete(o.ID(), o)
	default:
	}
	s.open.forget(o.Name(), o)
	s.end(o)
}
