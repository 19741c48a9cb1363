package scenario

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// writers is the worker process that writes.
type writers struct {
	load QueueLoad
	side writeSide
	all  meters
	sent []int        // messages of each origin that may be stored; used only by its writer's goroutine until run returns
	late atomic.Int64 // messages that were due before the end and not sent

	start atomic.Pointer[time.Time] // of run
	begun atomic.Int64              // messages sent
}

func newWriters(ctx context.Context, pool *pgxpool.Pool, load QueueLoad) (runner, func(), error) {
	side, err := sidesOf(load).writer(ctx, pool, load)
	if err != nil {
		return nil, nil, err
	}
	return &writers{load: load, side: side, all: newMeters(load.Writers), sent: make([]int, load.origins())}, side.close, nil
}

func (w *writers) meters() meters { return w.all }

func (w *writers) report([]int) *workerReport {
	return &workerReport{Phases: w.all.sum(), Sent: w.sent, Late: int(w.late.Load())}
}

func (w *writers) run(ctx context.Context) error {
	start := time.Now()
	w.start.Store(&start)
	failed := make([]error, w.load.Writers)
	var writing sync.WaitGroup
	for i := range w.load.Writers {
		writing.Go(func() { failed[i] = w.write(ctx, i, start) })
	}
	writing.Wait()
	return errors.Join(failed...)
}

// outstanding returns how many messages are due or sent, and not answered.
func (w *writers) outstanding() int {
	start, begun := w.start.Load(), int(w.begun.Load())
	if start == nil {
		return 0
	}
	if every := w.load.between(); every > 0 {
		begun = max(begun, (int(time.Since(*start)/every)+1)*w.load.Batch)
	}
	answered, failed := w.all.counts()
	return max(0, begun-answered-failed)
}

// write is one writer: it sends messages, with at most InFlight unanswered
// calls, until ctx ends, and then waits for the remaining answers.
func (w *writers) write(ctx context.Context, number int, start time.Time) error {
	slots := make(chan []byte, w.load.InFlight) // free slots, with their memory
	for range w.load.InFlight {
		slots <- nil
	}
	defer func() {
		for range w.load.InFlight {
			<-slots
		}
	}()
	sleeper := bench.NewSleeper()
	defer sleeper.Close()
	pace := newPace(start, w.load, number, sleeper.Until)
	for n := 0; ; n++ {
		due, waited, ok := pace.wait(ctx, n)
		if !ok {
			if !waited {
				w.missed(pace, n)
			}
			break
		}
		if waited {
			w.all[number].sent(time.Since(due))
		}
		var memory []byte
		select {
		case memory = <-slots:
		case <-ctx.Done():
			w.missed(pace, n)
			return nil
		}
		if w.load.Rate == 0 { // the call begins when there is a free slot
			due = time.Now()
		}
		stream, origin := w.load.target(number, n)
		memory, payloads := w.payloads(memory[:0], origin, due)
		w.sent[origin] += len(payloads)
		w.begun.Add(int64(len(payloads)))
		err := w.side.send(context.WithoutCancel(ctx), number, stream, payloads, func(err error) {
			took := time.Since(due)
			for range payloads {
				w.all[number].wrote(took, err)
			}
			slots <- memory
		})
		if err != nil {
			slots <- memory
			return err
		}
	}
	return nil
}

// missed counts the messages that are due from call n on and will not be sent.
func (w *writers) missed(p pace, n int) { w.late.Add(int64(p.missed(n) * w.load.Batch)) }

// payloads builds the messages of one call.
func (w *writers) payloads(memory []byte, origin int, at time.Time) ([]byte, [][]byte) {
	payloads := make([][]byte, w.load.Batch)
	for i := range payloads {
		memory = bench.AppendStamped(memory, origin, w.sent[origin]+i, at, w.load.Payload)
	}
	for i := range payloads {
		payloads[i] = memory[i*w.load.Payload : (i+1)*w.load.Payload]
	}
	return memory, payloads
}

// pace schedules the calls of a writer. The writers take turns, so that the
// load is even from the start.
type pace struct {
	first time.Time
	every time.Duration // 0: at once
	sleep func(ctx context.Context, until time.Time) bool
}

// between returns the time between two calls of all writers; 0 if there is no rate.
func (l QueueLoad) between() time.Duration {
	if l.Rate == 0 {
		return 0
	}
	return time.Duration(float64(l.Batch) / l.Rate * float64(time.Second))
}

func newPace(start time.Time, load QueueLoad, number int, sleep func(context.Context, time.Time) bool) pace {
	if load.Rate == 0 {
		return pace{}
	}
	between := load.between()
	if between < coarse {
		sleep = sleepCoarsely
	}
	return pace{
		first: start.Add(time.Duration(number) * between), every: time.Duration(load.Writers) * between,
		sleep: sleep,
	}
}

// coarse is the interval between calls of all writers below which Go's timers wake
// them, for several calls at a time: waking for each call would cost more than
// sending it.
const coarse = 100 * time.Microsecond

func sleepCoarsely(ctx context.Context, due time.Time) bool {
	select {
	case <-time.After(time.Until(due)):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// wait waits until call n is due, and returns that time, and whether it had to
// wait: a late call was delayed by missing answers. ok is false if ctx ended
// before.
func (p pace) wait(ctx context.Context, n int) (due time.Time, waited, ok bool) {
	if p.every == 0 {
		return time.Now(), false, ctx.Err() == nil
	}
	due = p.first.Add(time.Duration(n) * p.every)
	waited = time.Until(due) > 0
	return due, waited, p.sleep(ctx, due)
}

// missed returns how many calls from n on are due.
func (p pace) missed(n int) int {
	if p.every == 0 {
		return 0
	}
	return max(0, int(time.Since(p.first)/p.every)+1-n)
}
