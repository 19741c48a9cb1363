package postgres

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/pg"
)

// outageLog is a log handler that logs an outage of PostgreSQL once, and its end.
// During an outage every operation fails repeatedly and logs that: with a
// thousand streams there would be thousands of lines a second with one cause.
//
// The first warning about a lost connection is logged, and starts a probe of
// PostgreSQL. Until PostgreSQL answers, other such warnings are only counted.
// Errors are always logged.
type outageLog struct {
	slog.Handler
	*outage
}

// outage is the shared state of all logs derived from one outageLog.
type outage struct {
	probe func(context.Context) error
	ctx   context.Context // context of the probes
	stop  context.CancelFunc
	log   *slog.Logger // for the begin and end of an outage

	mu      sync.Mutex
	probing bool
	left    int // warnings that were not logged
	running sync.WaitGroup
}

// newOutageLog returns an outage log that writes to another log. Call
// outage.end at the end.
func newOutageLog(on *slog.Logger, probe func(context.Context) error) (*slog.Logger, *outage) {
	o := &outage{probe: probe, log: on}
	o.ctx, o.stop = context.WithCancel(context.Background())
	return slog.New(outageLog{on.Handler(), o}), o
}

// OutageLog returns a log that writes to another one, and logs an outage of the database at the URL once, and its end.
// Call end after the last use of the log.
func OutageLog(on *slog.Logger, url string) (log *slog.Logger, end func()) {
	log, o := newOutageLog(on, connectOnce(url))
	return log, o.end
}

// end stops the probes and waits for them.
func (o *outage) end() {
	o.mu.Lock()
	o.stop() // no probe begins after this
	o.mu.Unlock()
	o.running.Wait()
}

// Handle implements slog.Handler.
func (h outageLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level <= slog.LevelWarn && isAway(r) && h.known() {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h outageLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageLog{h.Handler.WithAttrs(attrs), h.outage}
}

// WithGroup implements slog.Handler.
func (h outageLog) WithGroup(name string) slog.Handler {
	return outageLog{h.Handler.WithGroup(name), h.outage}
}

// isAway reports whether a record has an error attribute that means that
// PostgreSQL is away.
func isAway(r slog.Record) (away bool) {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && pg.Away(err) {
			away = true
		}
		return !away
	})
	return away
}

// known reports whether an outage is being probed already, and counts the warning
// then. If not, it starts the probes.
func (o *outage) known() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.probing {
		o.left++
		return true
	}
	if o.ctx.Err() == nil {
		o.probing = true
		o.running.Go(o.watch)
	}
	return false
}

// watch probes until PostgreSQL answers.
func (o *outage) watch() {
	began := time.Now()
	for failed := 0; ; failed++ {
		ctx, cancel := context.WithTimeout(o.ctx, probeTimeout)
		err := o.probe(ctx)
		cancel()
		if err == nil || o.ctx.Err() != nil {
			o.over(failed > 0 && err == nil, time.Since(began))
			return
		}
		if failed == 0 {
			o.log.Warn("PostgreSQL does not answer; what was accepted waits, and is tried again", "error", Explain(err))
		}
		pg.Backoff(o.ctx, failed)
	}
}

func (o *outage) over(was bool, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if was {
		o.log.Info("PostgreSQL answers again", "after", took.Round(time.Millisecond), "warnings_left_out", o.left)
	}
	o.probing, o.left = false, 0
}

// connectOnce returns a probe that connects to the database and disconnects.
func connectOnce(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := pg.Connect(ctx, url)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	}
}
