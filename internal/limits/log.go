package limits

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"
)

// maxPeers is how many addresses a Log keeps apart.
const maxPeers = 1000

// Log writes at most one line a second for each client address, so that one client hides no other, and says how many lines were left out. With many
// addresses in one second the rest share a line.
type Log struct {
	log *slog.Logger

	mu    sync.Mutex
	peers map[netip.Addr]*peerLine // by Key
}

type peerLine struct {
	at      time.Time
	omitted int
}

func NewLog(log *slog.Logger) *Log {
	return &Log{log: log, peers: make(map[netip.Addr]*peerLine)}
}

// Warn writes a line about a client, or leaves it out.
func (l *Log) Warn(peer netip.Addr, text string, args ...any) {
	omitted, ok := l.next(Key(peer), time.Now())
	if !ok {
		return
	}
	if omitted > 0 {
		args = append(args, "omitted_lines", omitted)
	}
	l.log.Warn(text, append(args, "peer", peer)...)
}

// next reports whether a line may be written now, and how many were left out before.
func (l *Log) next(key netip.Addr, now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.peers[key]
	if line == nil {
		if line = l.room(key, now); line.at.IsZero() {
			line.at = now
			return line.omitted, true
		}
	}
	if now.Sub(line.at) < time.Second {
		line.omitted++
		return 0, false
	}
	omitted, line.at, line.omitted = line.omitted, now, 0
	return omitted, true
}

// room returns a new line for a key, or the one that all share that found no room. l.mu is held.
func (l *Log) room(key netip.Addr, now time.Time) *peerLine {
	if len(l.peers) >= maxPeers {
		for k, line := range l.peers {
			if now.Sub(line.at) >= time.Second && line.omitted == 0 {
				delete(l.peers, k)
			}
		}
	}
	if len(l.peers) >= maxPeers {
		key = netip.Addr{}
	}
	line := l.peers[key]
	if line == nil {
		line = new(peerLine)
		l.peers[key] = line
	}
	return line
}
