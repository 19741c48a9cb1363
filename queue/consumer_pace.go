package queue

import "time"

// paceTime is how long a page of messages should take its Consumer. A Consumer that settles a
// page sooner gets larger ones: each page costs a delivery and an acknowledgement. The messages
// of a page wait for each other, so this is also what it may cost in latency.
const paceTime = 4 * time.Millisecond

// maxPace is the largest such page while others wait: a Consumer that was fast may be slow next time.
const maxPace = 100

// pace measures how fast a Consumer settles what it receives. Guarded by the Node's mu.
type pace struct {
	began   time.Time // when the current page was delivered
	count   int       // messages of that page
	left    int       // of these, those that are not settled
	perPage int       // messages that it settles in paceTime, a moving average
}

// delivered notes a page that was delivered to a Consumer that had settled the one before.
func (p *pace) delivered(now time.Time, count int) {
	if p.left == 0 {
		p.began, p.count, p.left = now, count, count
	}
}

// settled notes that the Consumer has settled a message. Which page it is of does not matter: the
// pace is an estimate.
func (p *pace) settled() {
	if p.left == 0 {
		return
	}
	if p.left--; p.left > 0 {
		return
	}
	took := max(time.Since(p.began), time.Microsecond)
	in := min(int(paceTime*time.Duration(p.count)/took), maxPace)
	p.perPage += (in - p.perPage) / 4
	if p.perPage < in { // so that it grows from 0
		p.perPage++
	}
}
