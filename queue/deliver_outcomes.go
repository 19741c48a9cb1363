package queue

import (
	"context"
	"errors"
	"sync"
)

// outcomes collects the results of the settlements of one call (a latch). The caller
// has one channel for all of them.
type outcomes struct {
	mu   sync.Mutex
	errs []error
	left int           // settlements without a result
	all  chan struct{} // closed when left is 0
}

// errNoOutcome stands in outcomes.errs for a result that has not come.
var errNoOutcome = errors.New("no outcome yet")

func newOutcomes(n int) *outcomes {
	o := &outcomes{errs: make([]error, n), left: n, all: make(chan struct{})}
	for i := range o.errs {
		o.errs[i] = errNoOutcome
	}
	return o
}

// report records the result of the i-th settlement, once.
func (o *outcomes) report(i int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs[i] = err
	if o.left--; o.left == 0 {
		close(o.all)
	}
}

// wait returns all results. If ctx ends first, those that have not come are its error.
func (o *outcomes) wait(ctx context.Context) []error {
	select {
	case <-o.all:
		return o.errs
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := make([]error, len(o.errs)) // later results change the original
	for i, err := range o.errs {
		if err == errNoOutcome {
			err = ctx.Err()
		}
		errs[i] = err
	}
	return errs
}
