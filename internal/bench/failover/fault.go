package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// Fault is a way in which the primary is lost.
type Fault string

// The faults.
const (
	Kill       Fault = "kill"       // all its processes end at once
	CutOff     Fault = "cut-off"    // its standby receives nothing for a while, waits of commits are cancelled or terminated, then it is killed
	Freeze     Fault = "freeze"     // it hangs, and comes back after the promotion, as a primary
	Switchover Fault = "switchover" // it is shut down cleanly
)

// Faults are all of them.
var Faults = []Fault{Kill, CutOff, Freeze, Switchover}

// ParseFaults checks names.
func ParseFaults(names []string) (faults []Fault, err error) {
	for _, name := range names {
		if !slices.Contains(Faults, Fault(name)) {
			return nil, fmt.Errorf("%q is none of %v", name, Faults)
		}
		faults = append(faults, Fault(name))
	}
	return faults, nil
}

// disturbances are the other things that may happen to the primary before it is lost. None of them
// causes a promotion.
var disturbances = []string{"", "", "crash of one backend", "restart", "immediate restart"}

// promotion has the random choices for one promotion.
type promotion struct {
	fault     Fault
	calm      time.Duration // before anything happens
	disturb   string        // of disturbances
	settle    time.Duration // after that
	endWaits  string        // CutOff: the function that ends the waits of commits, or none
	cutFor    time.Duration // CutOff: until the primary is killed
	undecided time.Duration // from the loss to the promotion
	comeback  time.Duration // Freeze: from the promotion until the former primary comes back
	stays     time.Duration // and until it is ended
}

// plan draws the given number of promotions. The faults take turns.
func plan(seed uint64, faults []Fault, n int) (all []promotion) {
	r := rand.New(rand.NewPCG(seed, 0x7469646577697265))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	for i := range n {
		p := promotion{
			fault: faults[i%len(faults)], calm: 300*time.Millisecond + upTo(700*time.Millisecond),
			disturb: disturbances[r.IntN(len(disturbances))], settle: upTo(1500 * time.Millisecond),
			endWaits: []string{"", "pg_cancel_backend", "pg_terminate_backend"}[r.IntN(3)], cutFor: 200*time.Millisecond + upTo(1800*time.Millisecond),
			undecided: upTo(2 * time.Second), comeback: upTo(2 * time.Second), stays: upTo(2 * time.Second),
		}
		if p.fault == Freeze {
			p.undecided = upTo(8 * time.Second) // before and after the servers notice
		}
		all = append(all, p)
	}
	return all
}

// disturb disturbs the primary as planned.
func (p *Pair) disturb(ctx context.Context, what string) error {
	switch what {
	case "crash of one backend":
		return p.Crash(ctx)
	case "restart":
		return p.primaryServer().Restart(ctx)
	case "immediate restart":
		if err := p.primaryServer().Kill(ctx); err != nil {
			return err
		}
		return p.primaryServer().Restart(ctx)
	}
	return nil
}

// lose makes the primary fail. With CutOff, the standby receives nothing afterwards.
func (p *Pair) lose(ctx context.Context, how Fault) error {
	switch how {
	case Freeze:
		return p.primaryServer().Freeze(ctx)
	case Switchover:
		if err := on(ctx, p.primaryServer(), p.synchronise); err != nil { // as a cluster manager does
			return err
		}
		return p.stop(ctx)
	}
	return p.primaryServer().Kill(ctx)
}

// stop shuts the primary down cleanly, so that its standby receives everything.
func (p *Pair) stop(ctx context.Context) error {
	s := p.primaryServer()
	if err := syscall.Kill(s.PID(), syscall.SIGINT); err != nil { // a fast shutdown
		return err
	}
	for end := time.Now().Add(patience); s.Running(); {
		if time.Now().After(end) {
			return fmt.Errorf("the primary does not stop within %v", patience)
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
