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

// start starts the appender of a stream, after the one before it has written all that it accepted.
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

// end has the appender of a stream stop. It does not wait for that.
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

// made is told of a stream that was made just now: what was not found is looked up
// anew, and so is another one of its name, which another node has dropped.
func (s *streams) made(found *stream.Stream) {
	if o, open := s.open.peek(found.Name()); open && o.ID() != found.ID() {
		s.dropped(o.Stream)
	}
	s.open.changed(named(found.Name()))
	s.opened.changed(inFamily(found.Name()))
}

// dropped is told of a stream that was dropped just now: there may be another of its
// name at once.
func (s *streams) dropped(gone *stream.Stream) {
	s.open.changed(named(gone.Name()))
	for _, o := range s.open.all() {
		if o.ID() == gone.ID() {
			s.forget(o)
		}
	}
	s.opened.remove(inFamily(gone.Name()))
}

// becameQueue ends the appenders of streams that hold a queue's messages now; a
// stream that does not is opened again.
func (s *streams) becameQueue(name string) {
	for _, o := range s.open.remove(func(open string) bool { return open == name || strings.HasPrefix(open, name+"/") }) {
		s.forget(o)
	}
	s.opened.remove(inFamily(name))
}

// watchOwners ends, again and again until ctx ends, the appenders of streams that
// hold a queue's messages by now: another server may have made the queue.
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
			s.log.Debug("cannot look for the queues of open streams; tried again", "error", err)
		}
		s.closeIdle(time.Now(), s.idleAfter())
	}
}

// idleAfter returns for how long a stream may be idle. That clients keep many open is not to
// take the memory that others need.
func (s *streams) idleAfter() time.Duration {
	if s.open.len() > s.maxOpen {
		return idleAfterMany
	}
	return idleAfter
}

// closeIdle ends the appenders to which nobody has published for so long. Whoever
// publishes next opens the stream again.
func (s *streams) closeIdle(now time.Time, after time.Duration) {
	s.closing.Lock()
	defer s.closing.Unlock()
	for _, o := range s.open.all() {
		if o.progress.idle(now) >= after {
			s.forget(o)
		}
	}
}

// checkOwners looks once, with one query for all streams that are open.
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

// forget ends the appender of a stream that is gone, or idle.
func (s *streams) forget(o *openStream) {
	s.ending.Store(o.ID(), o)
	select {
	case <-o.done: // it has ended before
		s.ending.CompareAndDelete(o.ID(), o)
	default:
	}
	s.open.forget(o.Name(), o)
	s.end(o)
}
