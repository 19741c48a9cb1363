// Package faulty has servers with deliberate faults, for tests of what a
// benchmark must detect. Each server is as simple as possible and has one vice.
package faulty

import (
	"bytes"
	"time"
)

// Vice is a deliberate fault of a server.
type Vice int

// The vices. All except Slow affect one message in ten.
const (
	Honest Vice = iota
	Slow        // it answers everything that it has read, Delay later
	Lossy
	Duplicating
	Reordering // a message comes after the next one
)

// Vices are all of them.
var Vices = []Vice{Honest, Slow, Lossy, Duplicating, Reordering}

// Delay is the delay of a Slow server.
const Delay = 20 * time.Millisecond

// Wait takes Delay if the vice is Slow.
func (v Vice) Wait() {
	if v == Slow {
		time.Sleep(Delay)
	}
}

func (v Vice) String() string {
	return [...]string{"honest", "slow", "lossy", "duplicating", "reordering"}[v]
}

// Outlet passes messages on with a vice. Of each ten messages, it holds none back
// at the end.
type Outlet struct {
	Vice Vice
	n    int
	held []byte
}

// Pass calls send for the messages that the vice lets through after p.
func (o *Outlet) Pass(p []byte, send func([]byte)) {
	o.n++
	if o.n%10 == 5 {
		switch o.Vice {
		case Lossy:
			return
		case Duplicating:
			send(p)
		case Reordering:
			o.held = bytes.Clone(p)
			return
		}
	}
	send(p)
	if o.held != nil {
		send(o.held)
		o.held = nil
	}
}

// Rows returns messages with the vice, as a table would hold them.
func (v Vice) Rows(all [][]byte) (rows [][]byte) {
	o := Outlet{Vice: v}
	for _, p := range all {
		o.Pass(p, func(p []byte) { rows = append(rows, p) })
	}
	return rows
}
