package stream

import (
	"context"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// Start has what is accepted written from now on. An Appender that has nothing to write has
// no goroutine. Further calls do nothing.
func (a *Appender) Start() { a.starting.Do(a.start) }

func (a *Appender) start() {
	if a.cfg.Hub != nil {
		a.cfg.Hub.losses.appends(a)
	}
	c := joinCommitter(a.pool)
	a.committer.Store(c)
	c.do(func(*round) {
		if !a.solitary() {
			c.alone++ // as it is
		}
		a.solo.Load().start()
	})
}

// Stop accepts no more, and returns when what was accepted is committed or refused, and all
// callbacks have returned. This may take as long as PostgreSQL is away: see Abandon. It may
// be called more than once, and each call waits.
func (a *Appender) Stop() { a.stopping.Do(a.stop) }

func (a *Appender) stop() {
	a.Start() // what was accepted before that is to be written, too
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

// Abandon gives up what is accepted and not committed, with ErrOutcomeUnknown, and
// accepts no more. Stop is to be called all the same.
func (a *Appender) Abandon() {
	a.refuse()
	a.abandon()
	if c := a.committer.Load(); c != nil {
		c.takeBack(a)
	}
}

// enter lets a Submit add, until the Appender is closed. Either it sees that,
// or close sees it.
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

// refuse accepts no more.
func (a *Appender) refuse() {
	a.closing.Do(func() {
		a.idle = make(chan struct{}, 1)
		a.closed.Store(true)
	})
}

// close accepts no more, and returns when every Submit under way has added.
func (a *Appender) close() {
	a.refuse()
	for a.submitting.Load() > 0 {
		<-a.idle
	}
}

// solo is what an Appender has while it writes alone: batches that gather, and a goroutine.
// It goes when there was nothing to write alone for soloIdle: thousands of Appenders have
// none.
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

// run writes what gathers alone, or was handed back, until Stop, or until there is nothing.
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

// openWriter makes the writer, with the first goroutine that writes alone.
func (a *Appender) openWriter() {
	if a.writer == nil {
		a.writer = newWriter(a.pool, a.stream.table, a.stream.storage, a.cfg.Writer)
	}
}

// retire gives up s if the Appender writes with others. From then on another one may run.
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
