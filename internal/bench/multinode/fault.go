package multinode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidewire/tidewire/internal/fault"
)

// Fault is something that breaks.
type Fault string

// The faults. All except Kill and Freeze need network namespaces.
const (
	Kill        Fault = "kill"         // a node is killed, and started again
	Freeze      Fault = "freeze"       // a node is stopped by SIGSTOP, and continues
	Cut         Fault = "cut"          // two nodes cannot reach each other
	CutOneWay   Fault = "cut-one-way"  // one node cannot send to another
	Slow        Fault = "slow"         // a node sends and receives at most 1 Mbit/s
	CutDatabase Fault = "cut-database" // a node cannot reach PostgreSQL
)

// Faults are all of them.
var Faults = []Fault{Kill, Freeze, Cut, CutOneWay, Slow, CutDatabase}

// DefaultFaults returns the faults that can be caused on this machine, and why the others cannot, or nil.
func DefaultFaults() (faults []Fault, why error) {
	if why := fault.Available(); why != nil {
		return []Fault{Kill, Freeze}, why
	}
	return slices.Clone(Faults), nil
}

// ParseFaults checks names. It rejects faults that cannot be caused on this machine, and says why.
func ParseFaults(names []string) (faults []Fault, err error) {
	for _, name := range names {
		f := Fault(name)
		if !slices.Contains(Faults, f) {
			return nil, fmt.Errorf("%q is none of %v", name, Faults)
		}
		if f.needsNet() {
			if err := fault.Available(); err != nil {
				return nil, fmt.Errorf("%s needs network namespaces: %w", f, err)
			}
		}
		faults = append(faults, f)
	}
	return faults, nil
}

func (f Fault) needsNet() bool { return f != Kill && f != Freeze }

// step has the random choices for one fault.
type step struct {
	fault       Fault
	calm        time.Duration // before the fault
	node, other int           // the node that it hits, and for Cut and CutOneWay the node that this one does not reach
	length      time.Duration // until it is repaired
}

// shortest is the shortest time that a fault lasts.
const shortest = time.Second

// plan draws the given number of faults, which last up to longest. The kinds take turns.
func plan(seed uint64, faults []Fault, n, nodes int, longest time.Duration) (all []step) {
	r := rand.New(rand.NewPCG(seed, 0x7469646577697265))
	for i := range n {
		s := step{
			fault: faults[i%len(faults)], calm: 300*time.Millisecond + time.Duration(r.Int64N(int64(time.Second))),
			node: r.IntN(nodes), length: shortest + time.Duration(r.Int64N(int64(max(longest-shortest, 1)))),
		}
		s.other = (s.node + 1 + r.IntN(nodes-1)) % nodes
		all = append(all, s)
	}
	return all
}
