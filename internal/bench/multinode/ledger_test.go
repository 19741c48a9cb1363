package multinode

import (
	"testing"
	"time"
)

// job returns the delivery of a message.
func jobAt(position int64, token string) delivery {
	return delivery{Delivery: token, Payload: contentOf(1, int(position)).String(), Position: position, Attempt: 1}
}

// TestJobs_Promises: each kind of breach is found, and what is allowed is not taken for one.
func TestJobs_Promises(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(seconds float64) time.Time { return now.Add(time.Duration(seconds * float64(time.Second))) }
	one, two := life{0, 1}, life{1, 1}
	for name, c := range map[string]struct {
		happens func(j *jobs)
		broken  []string
	}{
		"settled": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.settle(jobAt(1, "a"), 1)
		}},
		"never delivered": {broken: []string{PromiseSettled}, happens: func(*jobs) {}},
		"lost":            {broken: []string{PromiseSettled}, happens: func(j *jobs) { j.take(jobAt(1, "a"), 1, one, at(0), at(1)); j.lost(jobAt(1, "a"), false) }},
		"unknown":         {happens: func(j *jobs) { j.take(jobAt(1, "a"), 1, one, at(0), at(1)); j.unknown(jobAt(1, "a")) }},
		"lost after an uncertain answer": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.lost(jobAt(1, "a"), true)
		}},
		"delivered after it is settled": {broken: []string{PromiseDone}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.settle(jobAt(1, "a"), 1)
			j.take(jobAt(1, "b"), 2, two, at(40), at(41))
		}},
		"two holders": {broken: []string{PromiseLease, PromiseSettled}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, two, at(10), at(11))
		}},
		"two holders, and the first one settles": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, one, at(10), at(11))
			j.settle(jobAt(1, "a"), 1)
		}},
		"after the lease": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, two, at(30), at(31))
			j.settle(jobAt(1, "b"), 2)
		}},
		"the node of the first was killed": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(0, at(2), true)(at(3))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"another node was killed": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(1, at(2), true)(at(3))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"it was killed before": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.fails(0, at(-5), true)(at(-4))
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"it was frozen for long": {happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(0, at(2), false)
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"it was frozen for a moment": {broken: []string{PromiseLease}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.fails(0, at(2), false)(at(3))
			j.take(jobAt(1, "b"), 2, two, at(18), at(18))
			j.settle(jobAt(1, "b"), 2)
		}},
		"another content": {broken: []string{PromiseKept, PromiseSettled}, happens: func(j *jobs) {
			j.take(jobAt(1, "a"), 1, one, at(0), at(1))
			j.take(delivery{Payload: "9 9", Position: 1}, 2, two, at(40), at(41))
		}},
	} {
		l := NewLedger()
		j := newJobs(l)
		l.Acknowledged(queue, contentOf(1, 1), 1)
		c.happens(j)
		j.check()
		t.Run(name, func(t *testing.T) { wantBroken(t, l, c.broken...) })
	}
}
