package limits

import "time"

const (
	// overdue is how long a client may send more than it may, without a pause, before its connection is ended.
	overdue = 3 * time.Second
	// longestRested is for how long the server reads nothing from such a client: one that has sent so much at once is ended, too.
	longestRested = 2 * overdue
	// controlPause is what counts as a pause between Pings or Pongs, at most: a client is not told to wait with them.
	controlPause = time.Second
)

// patience judges whether a client that sends more than it may pauses as long as it was told.
type patience struct {
	since time.Time     // the first refusal after the last pause; zero if there was none
	last  time.Time     // the message before, if since is set
	told  time.Duration // how long it was told to wait: such a pause is one
	taken bool          // something was allowed after the last refusal

	rested time.Duration // how long the server has read nothing, since then
}

// sent says that the client has sent something, whether it is allowed or not.
func (p *patience) sent(now time.Time) {
	if p.since.IsZero() {
		return
	}
	if now.Sub(p.last) >= p.told {
		p.since, p.rested = time.Time{}, 0
	}
	p.last = now
}

// wait says that the server has read nothing for a time.
func (p *patience) wait(d time.Duration) {
	if !p.since.IsZero() {
		p.since, p.last, p.rested = p.since.Add(d), p.last.Add(d), p.rested+d
	}
}

// refused says that the last one is over the rate, and after how long it would be allowed. It reports whether the client has gone on like that for too
// long.
func (p *patience) refused(now time.Time, wait time.Duration) (tooLong bool) {
	switch {
	case p.since.IsZero():
		p.since, p.last, p.told = now, now, wait
	case p.taken:
		p.told = wait
	}
	p.taken = false
	return now.Sub(p.since) >= overdue || p.rested >= longestRested
}
