package natsrelay

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// warnEvery is the least time between two lines of the NATS server in the log: a node with a wrong password tries again each second.
const warnEvery = 10 * time.Second

// warnings passes on what a NATS server inside the process warns of. It implements server.Logger.
type warnings struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

func (w *warnings) warn(format string, v []any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.last) >= warnEvery {
		w.last = now
		w.log.Warn("the connections of the cluster", "nats", fmt.Sprintf(format, v...))
	}
}

// Warnf, Errorf and Fatalf are what an operator has to know; the others are dropped.
func (w *warnings) Warnf(format string, v ...any)  { w.warn(format, v) }
func (w *warnings) Errorf(format string, v ...any) { w.warn(format, v) }
func (w *warnings) Fatalf(format string, v ...any) { w.warn(format, v) }
func (w *warnings) Noticef(string, ...any)         {}
func (w *warnings) Debugf(string, ...any)          {}
func (w *warnings) Tracef(string, ...any)          {}
