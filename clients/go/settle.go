package tidewire

import (
	"slices"
	"time"
)

// settle sends an ack, a nack or an extend, and returns the deliveries that are lost. What failed for a moment it sends again, if
// insist, as long as the connection lasts.
func (w *workerCore) settle(l *link, kind string, some []*delivery, fields func(out *writer), insist bool) map[string]bool {
	lost := map[string]bool{}
	for n := 0; ; n++ {
		failure, err := w.settleOnce(l, kind, some, fields)
		if err == nil {
			return lost
		}
		if failure == nil || !failure.Retryable && failure.Code != "lease_lost" {
			for _, d := range some {
				lost[d.name] = true
			}
			return lost
		}
		for _, name := range failure.Lost {
			lost[name] = true
		}
		if !failure.Retryable {
			return lost
		}
		if len(failure.Failed) > 0 {
			some = slices.DeleteFunc(slices.Clone(some), func(d *delivery) bool { return !slices.Contains(failure.Failed, d.name) })
		}
		if !insist || len(some) == 0 {
			return lost
		}
		select {
		case <-time.After(max(pause(n), milliseconds(failure.RetryAfterMS))):
		case <-l.over:
		}
	}
}

// settleOnce sends one request. Its error is the server's, if that is not nil.
func (w *workerCore) settleOnce(l *link, kind string, some []*delivery, fields func(out *writer)) (*wireError, error) {
	names := make([]string, len(some))
	for i, d := range some {
		names[i] = d.name
	}
	r := &request{kind: kind, repeat: leased, check: counted, encode: func(out *writer, _ *request) {
		out.text("queue", w.queue)
		out.texts("deliveries", names)
		if fields != nil {
			fields(out)
		}
	}}
	c := w.c
	c.mu.Lock()
	if c.link != l {
		c.unlock()
		return nil, ErrLeaseLost
	}
	c.startOn(l, r)
	c.unlock()
	<-r.done
	return r.wire, r.err
}
