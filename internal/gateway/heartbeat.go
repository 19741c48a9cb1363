package gateway

import "time"

// heartbeat decides when to ping a peer, and when it has been silent for too
// long. Only the reading goroutine uses it.
type heartbeat struct {
	interval, timeout time.Duration
	heard             time.Time // when something last arrived
	next              time.Time // when a ping is due
}

func newHeartbeat(cfg ChatConfig, now time.Time) heartbeat {
	return heartbeat{interval: cfg.PingInterval, timeout: cfg.PongTimeout, heard: now, next: now.Add(cfg.PingInterval)}
}

// deadline is when due must be called next.
func (h *heartbeat) deadline() time.Time {
	if silent := h.heard.Add(h.timeout); silent.Before(h.next) {
		return silent
	}
	return h.next
}

// due reports whether to ping now, or that the peer has been silent for too long.
func (h *heartbeat) due(now time.Time) (ping, silent bool) {
	if now.Sub(h.heard) >= h.timeout {
		return false, true
	}
	if now.Before(h.next) {
		return false, false
	}
	h.next = now.Add(h.interval)
	return true, false
}
