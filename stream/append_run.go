package stream

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// Start begins to write accepted messages. An Appender that has nothing to write has no
// goroutine. Further calls do nothing.
func (a *Appender) Start() { a.starting.Do(a.start) }

func (a *Appender) start() {
	if a.cfg.Hub != nil {
		a.cfg.Hub.losses.appends(a)
	}
	c := joinCommitter(a.pool)
	a.committer.Store(c)
	c.do(func(*round) {
		if !a.solitary() {
			c.alone++ // it begins alone
		}
		a.solo.Load().start()
	})
}

// Stop accepts no more messages, and returns when all accepted ones are committed or
// rejected, and all callbacks have returned. This may take as long as PostgreSQL is
// unavailable: see Abandon. It may be called more than once, and each call waits.
func (a *Appender) Stop() { a.stopping.Do(a.stop) }

func (a *Appender) stop() {
	a.Start() // messages accepted before Start have to be written, too
	a.close()
	c := a.committer.Load()
	var s *solo
	c.do(func(*round) {
		a.ending = true
		s = a.solo.Load()
	})
	if s != nil {
		s.stop()
		<-s.ended
	}
	a.openWriter()
	a.awaitRounds(context.Background()) // Abandon ends it
	a.doHanded()
	c.do(func(*round) {
		if a.alone.Load() && !a.solitary() {
			c.alone--
		}
	})
	a.keeper.stop()
	a.helpers.Wait()
	a.abandon()
	a.writer.Close()
	c.leave()
	if a.cfg.Hub != nil {
		a.cfg.Hub.losses.stops(a)
	}
}

// Abandon ends accepted messages that are not committed with ErrOutcomeUnknown, and
// accepts no more. Stop must still be called.
func (a *Appender) Abandon() {
	a.refuse()
	a.abandon()
	if c := a.committer.Load(); c != nil {
		c.takeBack(a)
	}
}

// enter lets a Submit add, until the Appender is closed. Either enter sees that the
// Appender is closed, or close sees the Submit.
func (a *Appender) enter() bool {
	a.submitting.Add(1)
	if a.closed.Load() {
		a.leave()
		return false
	}
	return true
}

func (a *Appender) leave() {
	if a.submitting.Add(-1) == 0 && a.closed.Load() {
		pg.Signal(a.idle)
	}
}

// refuse makes Submit return ErrClosed from now on.
func (a *Appender) refuse() {
	a.closing.Do(func() {
		a.idle = make(chan struct{}, 1)
		a.closed.Store(true)
	})
}

// close stops accepting messages, and returns when every Submit under way has added its
// messages.
func (a *Appender) close() {
	a.refuse()
	for a.submitting.Load() > 0 {
		<-a.idle
	}
}

// solo is the state of an Appender that writes alone: its batches and a goroutine. It is
// released when there was nothing to write alone for soloIdle, so thousands of idle
// Appenders need no goroutine.
type solo struct {
	of    *Appender
	group *pg.Group[appendBatch]
	spare chan []call // memory for the next batches

	gathering context.Context // ends with stop
	stop      context.CancelFunc
	ended     chan struct{} // closed when the goroutine has ended
}

const soloIdle = time.Second

func newSolo(a *Appender) *solo {
	s := &solo{of: a, spare: make(chan []call, 2), ended: make(chan struct{})}
	s.group = pg.NewGroup(&appendBatch{}, &appendBatch{}, a.cfg.MaxBatch, a.cfg.MaxBatchBytes).Linger(a.cfg.Linger)
	s.group.Admit(func(ctx context.Context) {
		a.awaitRounds(ctx)
		a.writer.on.Hold(ctx) // its error is Write's, too
	}, func() { a.writer.on.Release() })
	if !a.solitary() {
		s.group.ReturnIdle(soloIdle)
	}
	s.gathering, s.stop = context.WithCancel(context.Background())
	return s
}

// start starts the goroutine, under the committer's lock.
func (s *solo) start() { go s.run() }

// run writes the Appender's own batches and the entries handed back to it, until Stop or
// until there are none.
func (s *solo) run() {
	defer close(s.ended)
	defer s.stop()
	a := s.of
	a.openWriter()
	for going := true; going; {
		a.doHanded()
		a.rejoin(s)
		idle := true
		going = s.group.Next(s.gathering, a.work, func(ctx context.Context, b *appendBatch) {
			idle = false
			a.commit(ctx, s, b)
		})
		if going && idle && a.retire(s) {
			return
		}
	}
}

// openWriter creates the writer when the first goroutine that writes alone starts.
func (a *Appender) openWriter() {
	if a.writer == nil {
		a.writer = newWriter(a.pool, a.stream.table, a.stream.storage, a.cfg.Writer)
	}
}

// retire releases s if the Appender writes through the committer. From then on another
// solo may run.
func (a *Appender) retire(s *solo) (retired bool) {
	c := a.committer.Load()
	s.group.IfEmpty(func() {
		c.do(func(*round) {
			if !a.alone.Load() && !a.ending && len(a.handed) == 0 {
				a.solo.Store(nil)
				retired = true
			}
		})
	})
	return retired
}
