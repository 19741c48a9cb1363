package cluster

import (
	"sync"
	"time"
)

// maxDigest is the size after which a digest is sent, in bytes.
const maxDigest = 64 << 10

// activeLinks are the links that are in the next digest.
type activeLinks struct {
	mu    sync.Mutex
	links []*link
}

func (a *activeLinks) add(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.links = append(a.links, l)
}

func (a *activeLinks) take() []*link {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.links
	a.links = nil
	return taken
}

// digest sends the numbers of the rooms in which this node has sent lately.
func (n *Node) digest(now time.Time) {
	lately := n.active.take()
	n.sendDigests(now, lately)
	for _, l := range lately {
		l.out.Lock()
		if l.digests--; l.digests > 0 {
			n.active.add(l)
		}
		l.out.Unlock()
	}
}

// sendDigests sends the numbers of some rooms, in a message or more for each slot.
func (n *Node) sendDigests(now time.Time, links []*link) {
	of := make(map[slot][]byte)
	for _, l := range links {
		digest := of[l.slot]
		if digest == nil {
			digest = appendHead(nil, kindDigest, n.id)
		}
		l.out.Lock()
		digest = appendPlace(appendName(digest, l.name), l.place(now))
		l.out.Unlock()
		if of[l.slot] = digest; len(digest) > maxDigest {
			n.relay.Publish(l.slot.topic(), digest)
			delete(of, l.slot)
		}
	}
	for s, digest := range of {
		n.relay.Publish(s.topic(), digest)
	}
}

// linksOf returns the links of some slots.
func (n *Node) linksOf(asked map[slot]bool) (of []*link) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, l := range n.links {
		if asked[l.slot] {
			of = append(of, l)
		}
	}
	return of
}

// forget forgets the links of rooms that have ended long ago, and the oldest if there are too many. n.mu is held.
func (n *Node) forget(now time.Time) {
	for len(n.closed) > 0 && (len(n.closed) > keepLinks || now.Sub(n.closed[0].at) > keepLink) {
		first := n.closed[0]
		n.closed[0] = closing{}
		n.closed = n.closed[1:]
		if l := first.link; n.links[l.name] == l && l.ended(first.at) {
			delete(n.links, l.name)
			n.unlisten(l.slot)
		}
	}
}

// ended reports whether the room has not begun again since it has ended at that time.
func (l *link) ended(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.in == nil && !l.closed.After(at)
}
