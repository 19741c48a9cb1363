package pg

import "time"

const (
	// closedWait is the longest that a batch waits for closed-loop callers. A batch of
	// smallBatch bytes or more does not wait.
	closedWait = time.Millisecond
	smallBatch = 16 << 10
	// openWait is how long a batch waits for independent callers.
	openWait = 2 * time.Millisecond
	// worthwhileGrowth: a wait for closed-loop callers that took longer than a commit
	// has paid off if the batch has grown at least this many times.
	worthwhileGrowth = 3
	// maxSkip is the most batches that do not wait, after waits that did not pay off.
	maxSkip = 16
	// Open-loop mode begins when manyArrivals calls or more arrive in the second half of
	// a wait. It ends when their average falls below fewArrivals.
	manyArrivals, fewArrivals = 2, 1
	// The policy probes for independent callers: minProbe to maxProbe batches lie
	// between two probes. Open-loop mode that ends before minProbe waits was chance.
	minProbe, maxProbe = 16, 512
)

// lingerPolicy decides how long a batch that starts soon after a commit lingers, that
// is, waits for more calls. It learns from the earlier waits.
//
// Closed loop: callers that wait for their answer are soon back with the next call. The
// batch waits, for at most 1 ms, until it has as many calls as the batch before. A wait
// that takes longer than a commit and does not at least triple the batch does not pay
// off. After it the policy backs off exponentially: the next 1, 2, 4, … up to 16 batches
// do not wait.
//
// Open loop: independent callers arrive at times that do not depend on any answer. They
// still arrive in the second half of 2 ms, when all closed-loop callers are back. From
// two thousand calls a second on, each batch waits the whole 2 ms, so that five or more
// share a commit. The policy probes for them with such a wait every 16 batches. Each
// probe that finds none doubles this interval, up to 512 batches.
type lingerPolicy struct {
	ended    time.Time     // the last commit
	took     time.Duration // that commit
	skip     int           // batches that still do not wait for closed-loop callers
	lastSkip int           // value of skip after the last wait that did not pay off
	arrivals float64       // average number of calls in the second half of a wait
	openLoop bool          // mode
	stay     int           // waits since the open-loop mode began
	probe    int           // batches since the last probe
	spacing  int           // batches from one probe to the next
}

type waiting int

const (
	noWait waiting = iota
	closedLoop
	openLoop
)

// committed is called after each commit.
func (c *lingerPolicy) committed(began, ended time.Time) {
	c.ended, c.took = ended, ended.Sub(began)
}

// next returns the kind of wait for a batch that starts now.
func (c *lingerPolicy) next(now time.Time) waiting {
	if now.Sub(c.ended) > closedWait {
		return noWait
	}
	if c.openLoop {
		return openLoop
	}
	if c.probe++; c.probe >= max(c.spacing, minProbe) {
		return openLoop
	}
	return closedLoop
}

// tries reports whether a batch waits for closed-loop callers.
func (c *lingerPolicy) tries() bool {
	if c.skip > 0 {
		c.skip--
		return false
	}
	return true
}

// waited is called after a wait for closed-loop callers, with the number of calls in the
// batch before and after it. ready says that as many came as were in the batch before.
func (c *lingerPolicy) waited(ready bool, took time.Duration, before, after int) {
	if ready && took <= c.took || after >= worthwhileGrowth*before {
		c.lastSkip = 0
		return
	}
	c.lastSkip = min(max(1, 2*c.lastSkip), maxSkip)
	c.skip = c.lastSkip
}

// arrivedLate is called after a wait for independent callers, with the number of calls
// that arrived in its second half.
func (c *lingerPolicy) arrivedLate(calls int) {
	if !c.openLoop {
		c.probe, c.stay, c.arrivals = 0, 0, float64(calls)
		if c.openLoop = calls >= manyArrivals; !c.openLoop {
			c.wideSpacing()
		}
		return
	}
	c.stay++
	c.arrivals += (float64(calls) - c.arrivals) / 4
	if c.arrivals >= fewArrivals {
		return
	}
	c.openLoop = false
	if c.stay < minProbe {
		c.wideSpacing() // it was chance
	} else {
		c.spacing = minProbe
	}
}

func (c *lingerPolicy) wideSpacing() { c.spacing = min(2*max(c.spacing, minProbe), maxProbe) }
