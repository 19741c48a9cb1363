package serve

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// handshakesEvery is how often failed TLS handshakes are logged at most: any scanner of ports causes them.
const handshakesEvery = time.Minute

// httpLog takes what net/http logs. Safe for concurrent use.
type httpLog struct {
	log *slog.Logger

	mu     sync.Mutex
	failed int // handshakes since the last line about them
	next   time.Time
}

// Write takes one line.
func (l *httpLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(strings.TrimPrefix(string(line), "http: "))
	if about, ok := strings.CutPrefix(text, "TLS handshake error "); ok {
		l.handshake(about)
	} else {
		l.log.Warn("HTTP server", "error", text)
	}
	return len(line), nil
}

// handshake counts a failed TLS handshake, and logs it together with those since the last line.
func (l *httpLog) handshake(about string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	if now := time.Now(); !now.Before(l.next) {
		l.log.Info("TLS handshakes failed", "number", l.failed, "last", about)
		l.failed, l.next = 0, now.Add(handshakesEvery)
	}
}
