// Package faulty has servers that do wrong on purpose, for tests of what a
// benchmark has to notice. Each is the plainest of its kind and has one vice.
package faulty

import (
	"bytes"
	"time"
)

// Vice is what a server does wrong.
type Vice int

// The vices. All but Slow befall one message in ten.
const (
	Honest Vice = iota
	Slow        // it answers all that it has read Delay later
	Lossy
	Duplicating
	Reordering // a message comes after the next one
)

// Vices are all of them.
var Vices = []Vice{Honest, Slow, Lossy, Duplicating, Reordering}

// Delay is how slow a Slow server is.
const Delay = 20 * time.Millisecond

func (v Vice) String() string {
	return [...]string{"honest", "slow", "lossy", "duplicating", "reordering"}[v]
}

// Outlet passes messages on with a vice. Of ten messages none is held at the end.
type Outlet struct {
	Vice Vice
	n    int
	held []byte
}

// Pass calls send for what is to be seen of p and of those before it.
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
