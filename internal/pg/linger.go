package pg

import "time"

const (
	// patience is how long a batch waits for lingerPolicy, at most, and smallBatch how
	// large it may be, in bytes, to be worth waiting.
	patience   = time.Millisecond
	smallBatch = 16 << 10
	// gathering is how long a batch waits for strangers.
	gathering = 2 * time.Millisecond
	// worthWaiting is how many times as many have to have come by the end of a
	// wait for callers that took longer than a commit.
	worthWaiting = 3
	// maxSkip is how many batches at most do not wait after waits in vain.
	maxSkip = 16
	// manyStrangers is how many have to come in the second half of a wait, on
	// average, for it to go on, and fewStrangers how few end it.
	manyStrangers, fewStrangers = 2, 1
	// From minProbe to maxProbe batches lie between two waits that find out
	// whether there are strangers; and as many as minProbe waits are worth a
	// stay.
	minProbe, maxProbe = 16, 512
)

// lingerPolicy decides what a batch that follows a commit closely waits for, if for
// anything, going by what came of it before.
//
// Callers that wait for their answers are back soon, and wait for each other:
// for as many as were in the batch before. Where that took longer than a commit,
// and did not bring three times as many, it was in vain: the next batches do not
// wait, one, and twice as many each time, up to 16.
//
// Strangers come at times of their own, however long they wait for answers. Their
// sign is that they still come in the second half of two milliseconds, when all
// that were answered before are back. From two thousand a second on, each batch
// waits the whole time, so that five share a commit and more. Whether there are any
// is found out by a wait every 16 batches, or twice as many each time that there
// were none, up to 512.
type lingerPolicy struct {
	ended      time.Time     // the last commit
	took       time.Duration // that commit
	skip, vain int           // batches that do not wait for callers; how many after the last wait in vain
	stranger   float64       // that come in the second half of a wait, on average
	gathers    bool          // for strangers
	stay       int           // waits for strangers so far
	probe      int           // batches until the next wait that finds out
	spacing    int           // from one to the next
}

type waiting int

const (
	forNobody waiting = iota
	forCallers
	forStrangers
)

// committed is told of each commit.
func (c *lingerPolicy) committed(began, ended time.Time) {
	c.ended, c.took = ended, ended.Sub(began)
}

// next says for whom a batch waits that begins now.
func (c *lingerPolicy) next(now time.Time) waiting {
	if now.Sub(c.ended) > patience {
		return forNobody
	}
	if c.gathers {
		return forStrangers
	}
	if c.probe++; c.probe >= max(c.spacing, minProbe) {
		return forStrangers
	}
	return forCallers
}

// tries reports whether a batch waits for callers that are not there yet.
func (c *lingerPolicy) tries() bool {
	if c.skip > 0 {
		c.skip--
		return false
	}
	return true
}

// waited is told how a wait for callers ended that so many waited for before.
func (c *lingerPolicy) waited(ready bool, took time.Duration, before, after int) {
	if ready && took <= c.took || after >= worthWaiting*before {
		c.vain = 0
		return
	}
	c.vain = min(max(1, 2*c.vain), maxSkip)
	c.skip = c.vain
}

// cameLate is told how many came in the second half of a wait for strangers.
func (c *lingerPolicy) cameLate(came int) {
	if !c.gathers {
		c.probe, c.stay, c.stranger = 0, 0, float64(came)
		if c.gathers = came >= manyStrangers; !c.gathers {
			c.wideSpacing()
		}
		return
	}
	c.stay++
	c.stranger += (float64(came) - c.stranger) / 4
	if c.stranger >= fewStrangers {
		return
	}
	c.gathers = false
	if c.stay < minProbe {
		c.wideSpacing() // it was chance
	} else {
		c.spacing = minProbe
	}
}

func (c *lingerPolicy) wideSpacing() { c.spacing = min(2*max(c.spacing, minProbe), maxProbe) }
