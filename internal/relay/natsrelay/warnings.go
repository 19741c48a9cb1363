package natsrelay

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// warnEvery is the least time between two lines of a kind in the log: a node with a wrong secret tries again each second.
const warnEvery = 10 * time.Second

// warnings passes on what a NATS server inside the process warns of. It implements server.Logger.
type warnings struct {
	log *slog.Logger
	// own is whether the certificates are those of an operator's authority.
	own bool

	mu             sync.Mutex
	refused, other time.Time // when a line of this kind was written last
}

func (w *warnings) warn(format string, v []any) {
	text := fmt.Sprintf(format, v...)
	if strings.HasPrefix(text, "Plaintext passwords") { // they are random, and only in memory
		return
	}
	if strings.Contains(text, "TLS route handshake error") || strings.Contains(text, "TLS handshake timeout") {
		if w.due(&w.refused) {
			w.log.Warn("a connection between servers of the cluster was refused", "error", text, "do", w.advice(text))
		}
		return
	}
	if w.due(&w.other) {
		what := "NATS inside this process has a problem"
		if strings.Contains(text, "trying to connect to route") {
			what = "cannot connect to another server of the cluster"
		}
		w.log.Warn(what, "error", text)
	}
}

func (w *warnings) due(last *time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(*last) < warnEvery {
		return false
	}
	*last = now
	return true
}

// advice says what to do about a connection whose TLS handshake has failed.
func (w *warnings) advice(text string) string {
	const stranger = "If the address is a stranger's, block it in your firewall"
	if strings.Contains(text, "timeout") || strings.HasSuffix(text, "EOF") {
		return "The other side has not answered in time, or has ended the connection: look at its log. " + stranger
	}
	if w.own {
		return "Give all servers certificates of the same CA, for clients and servers. " + stranger
	}
	return "Give all servers the same --cluster, the same database or --cluster-secret-file, and no --cluster-tls-… or all of them. " + stranger
}

// Warnf, Errorf and Fatalf are what an operator has to know; the others are dropped.
func (w *warnings) Warnf(format string, v ...any)  { w.warn(format, v) }
func (w *warnings) Errorf(format string, v ...any) { w.warn(format, v) }
func (w *warnings) Fatalf(format string, v ...any) { w.warn(format, v) }
func (w *warnings) Noticef(string, ...any)         {}
func (w *warnings) Debugf(string, ...any)          {}
func (w *warnings) Tracef(string, ...any)          {}
