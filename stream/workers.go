package stream

import "time"

// workerIdle is for how long a worker that has nothing to do waits for more.
const workerIdle = time.Second

// workers is a worker pool for the callbacks of all Appenders of a pool of connections: as many
// goroutines as have callbacks at a time. A new goroutine for each would have its stack
// grown, and copied, each time: a seventh of a server's CPU with 10,000 streams
// (docs/benchmarks/streams.md). A callback that blocks holds up no other Appender.
type workers struct {
	idle chan *Appender  // to a worker that waits
	life <-chan struct{} // closed when none is to wait any more
}

// answer has a worker call back what the Appender has answered.
func (w *workers) answer(a *Appender) {
	select {
	case w.idle <- a:
	default:
		go w.work(a)
	}
}

func (w *workers) work(a *Appender) {
	timer := time.NewTimer(workerIdle)
	defer timer.Stop()
	for {
		a.answer()
		a.helpers.Done()
		timer.Reset(workerIdle)
		select {
		case a = <-w.idle:
		case <-timer.C:
			return
		case <-w.life:
			return
		}
	}
}
