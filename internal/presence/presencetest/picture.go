// Package presencetest reads a presence stream as docs/how-to/presence-events.md says, and finds events that contradict each other.
package presencetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Entry is a connection, or, with a Room, a membership.
type Entry struct{ Node, Connection, User, Room string }

// String names the entry without what is random.
func (e Entry) String() string { return fmt.Sprintf("%q in %q", e.User, e.Room) }

// Event is the payload of a message.
type Event struct {
	Type, Node, Connection, User, Room string
	Count                              uint64
	Time                               time.Time
}

// Picture is what a reader of the stream knows. The zero value has read nothing.
type Picture struct {
	Entries map[Entry]bool
	// Lost is the sum of the counts of events_lost, and Types how many events of each type there were.
	Lost  uint64
	Types map[string]int
	// Faults are the events that contradict those before.
	Faults []string
	told   map[string]bool // the nodes whose events have to follow from each other
}

// Apply takes the next message.
func (p *Picture) Apply(key string, payload []byte) {
	var e Event
	if err := json.Unmarshal(payload, &e); err != nil {
		p.Faults = append(p.Faults, fmt.Sprintf("%s: %v", payload, err))
		return
	}
	if p.Entries == nil {
		p.Entries, p.Types, p.told = make(map[Entry]bool), make(map[string]int), make(map[string]bool)
	}
	p.Types[e.Type]++
	fault := func(when bool, why string) {
		if when {
			p.Faults = append(p.Faults, why+": "+string(payload))
		}
	}
	fault(e.Node == "" || e.Time.IsZero(), "no node or time")
	entry := Entry{e.Node, e.Connection, e.User, e.Room}
	switch e.Type {
	case "connected", "joined", "disconnected", "left":
		begins := e.Type == "connected" || e.Type == "joined"
		fault(!strings.HasPrefix(e.Connection, e.Node+"-"), "no connection of the node")
		fault((e.Room == "") != strings.HasSuffix(e.Type, "connected"), "the room")
		fault(e.User != "" && key != e.User || e.User == "" && key != e.Connection, "key "+key)
		fault(p.told[e.Node] && p.Entries[entry] == begins, "it was so already")
		if begins {
			p.Entries[entry] = true
		} else {
			delete(p.Entries, entry)
		}
	case "node_started", "events_lost", "node_stopped", "node_left":
		if e.Type == "node_stopped" {
			for entry := range p.Entries {
				fault(entry.Node == e.Node, "there is still "+entry.String())
			}
		}
		maps.DeleteFunc(p.Entries, func(entry Entry, _ bool) bool { return entry.Node == e.Node })
		p.told[e.Node] = e.Type == "node_started" || e.Type == "events_lost"
		p.Lost += e.Count
	default:
		fault(true, "an unknown type")
	}
}

// Names returns the entries without what is random, sorted.
func (p *Picture) Names() []string {
	names := make([]string, 0, len(p.Entries))
	for entry := range p.Entries {
		names = append(names, entry.String())
	}
	slices.Sort(names)
	return names
}
