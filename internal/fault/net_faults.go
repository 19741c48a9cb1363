package fault

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// fault is what happens to the packets of a path.
type fault int

const (
	healthy fault = iota
	refused       // the sender's kernel has a blackhole route
	dropped       // packets go to an Ethernet address that no link has
)

// unusedMAC is an Ethernet address that no link has: the bridge floods what is sent to it, and all nodes ignore it.
const unusedMAC = "02:00:00:00:00:fe"

// Cut cuts two nodes, or a node and Host, from each other, as CutOneWay does in each direction.
func (n *Net) Cut(a, b int) error {
	return errors.Join(n.CutOneWay(a, b), n.CutOneWay(b, a))
}

// CutOneWay makes the kernel of a node discard what is sent to another node or to Host, by a blackhole route. Connections that exist stall without an
// error. A new one fails at once with EINVAL if from opens it, and hangs if to opens it, since answers are discarded. If from is Host, it is
// DropOneWay, so that the host's routes stay as they are.
func (n *Net) CutOneWay(from, to int) error {
	if from == Host {
		return n.DropOneWay(from, to)
	}
	return n.set(path{from, to}, refused)
}

// Drop loses what two nodes, or a node and Host, send each other, as DropOneWay does in each direction.
func (n *Net) Drop(a, b int) error {
	return errors.Join(n.DropOneWay(a, b), n.DropOneWay(b, a))
}

// DropOneWay loses what one node or Host sends another, by a neighbor entry with an Ethernet address that no link has. It differs from CutOneWay in that
// the sender does not learn it: new connections hang, as they do when a switch fails.
func (n *Net) DropOneWay(from, to int) error { return n.set(path{from, to}, dropped) }

// Heal ends what Cut, CutOneWay, Drop and DropOneWay have done between two nodes, in both directions.
func (n *Net) Heal(a, b int) error {
	return errors.Join(n.set(path{a, b}, healthy), n.set(path{b, a}, healthy))
}

// HealAll does the same between all nodes, and Host. Links that are down and rates stay.
func (n *Net) HealAll() error {
	n.mu.Lock()
	paths := slices.Collect(maps.Keys(n.faults))
	n.mu.Unlock()
	var errs []error
	for _, p := range paths {
		errs = append(errs, n.set(p, healthy))
	}
	return errors.Join(errs...)
}

// set replaces the fault of a path by another.
func (n *Net) set(p path, f fault) error {
	to := n.Addr(p.to)
	if p.from == p.to {
		return fmt.Errorf("fault: node %d and itself", p.to)
	}
	return n.change(func() error { return n.replace(p, f, to.String()) })
}

// change changes the network, unless it is closed.
func (n *Net) change(change func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return errClosed
	}
	return change()
}

// replace makes the new fault before it removes the old one, so that no packet passes between.
func (n *Net) replace(p path, f fault, to string) error {
	old := n.faults[p]
	if old == f {
		return nil
	}
	if f != healthy {
		if err := n.apply(p.from, "replace", f, to); err != nil {
			return err
		}
		n.faults[p] = f
	}
	if old != healthy {
		if err := n.apply(p.from, "del", old, to); err != nil {
			return err
		}
	}
	if f == healthy {
		delete(n.faults, p)
	}
	return nil
}

// apply adds or removes what makes a fault, in the namespace of the sender.
func (n *Net) apply(from int, verb string, f fault, to string) error {
	namespace, link := "", n.slot.bridge()
	if from != Host {
		namespace, link = n.Namespace(from), nodeLink
	}
	if f == refused {
		return batch(namespace, fmt.Sprintf("route %s blackhole %s/32", verb, to))
	}
	if verb == "replace" {
		return batch(namespace, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", to, unusedMAC, link))
	}
	return batch(namespace, fmt.Sprintf("neigh del %s dev %s", to, link))
}

// Down takes a node's link down at the bridge, as if its cable were unplugged. The node keeps its address and routes, and its connections stall.
func (n *Net) Down(node int) error {
	n.check(node)
	return n.change(func() error { return ip("link", "set", n.slot.link(node), "down") })
}

// Up ends Down.
func (n *Net) Up(node int) error {
	n.check(node)
	return n.change(func() error { return ip("link", "set", n.slot.link(node), "up") })
}

// Rate limits what a node sends, and what it receives, to bitsPerSecond each, by a token bucket (tc tbf); 0 ends the limit. Packets of about 100 ms,
// and at least 64 KiB, wait at the limit; more are lost. It needs the program tc.
func (n *Net) Rate(node int, bitsPerSecond int64) error {
	n.check(node)
	if bitsPerSecond < 0 {
		return fmt.Errorf("fault: a rate of %d bits a second", bitsPerSecond)
	}
	return n.change(func() error {
		if bitsPerSecond > 0 {
			n.limits[node] = true
			return n.limit(node, bitsPerSecond)
		}
		if !n.limits[node] {
			return nil
		}
		delete(n.limits, node)
		return n.qdisc(node, "del")
	})
}

func (n *Net) limit(node int, bitsPerSecond int64) error {
	const packet = 1600                              // bytes of the largest packet, with its headers
	burst := max(2*packet, bitsPerSecond/8/100)      // bytes that may leave at once: tokens may come only every 10 ms, with the timer's tick
	limit := burst + max(64<<10, bitsPerSecond/8/10) // bytes that may wait
	return n.qdisc(node, "replace", "tbf", "rate", fmt.Sprintf("%dbit", bitsPerSecond), "burst", fmt.Sprint(burst), "limit", fmt.Sprint(limit))
}

// qdisc changes the root queueing discipline at both ends of a node's link: each limits what it sends.
func (n *Net) qdisc(node int, verb string, discipline ...string) error {
	args := append([]string{"root"}, discipline...)
	return errors.Join(
		run(n.command(node, "tc", append([]string{"qdisc", verb, "dev", nodeLink}, args...)...)),
		tc(append([]string{"qdisc", verb, "dev", n.slot.link(node)}, args...)...))
}
