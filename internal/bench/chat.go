package bench

import (
	"crypto/tls"
	"fmt"
	"time"
)

// ChatConfig describes the load of a chat run. All clients are members of the
// public room. Times count from the start of the run.
type ChatConfig struct {
	// URL of the WebSocket. Of several, separated by |, the clients use one after the other: they are servers of a cluster.
	URL string
	// TLS is for wss URLs. Defaults to what the system trusts.
	TLS *tls.Config
	// Clients is the number of connections, at most 65,536.
	Clients int
	// Ramp is the time over which they connect. 0 means as fast as they can.
	Ramp time.Duration
	// Hold is how long the load lasts once all are members.
	Hold time.Duration
	// Down is the time over which they leave at the end.
	Down time.Duration
	// Rate is the number of chats a second that each member sends, at times
	// fixed in advance and spread evenly over the clients (open loop).
	Rate float64
	// Greet makes every member send one chat after it has joined.
	Greet bool
	// Session is how long a membership lasts. Defaults to the whole run.
	Session time.Duration
	// Return is the time until which a client comes back after its Session has
	// ended. A session that would end after Return lasts until the end of the run.
	Return time.Duration
	// Payload is the size of a chat's JSON in bytes, MinChat to MaxChat.
	Payload int
	// Compress makes the clients offer compression, which the server has to accept, and ask for batches. A compressed message that many
	// clients get is inflated once, and compared byte by byte for the others. Defaults to false.
	Compress bool
	// Checked is the number of clients that check each message they receive:
	// for loss, duplicates, order by sender, and latency. The other clients
	// only count.
	Checked int
	// Patience is how long a client waits for an answer, and how long the end
	// of the run waits for chats in flight. Defaults to 10 s.
	Patience time.Duration
	// Progress is called every two seconds with the state of the run, by the
	// goroutine that makes the load.
	Progress func(ChatMark)
	// Gauge lets other goroutines ask how far the load is. Defaults to none.
	Gauge *Progress
}

func (c ChatConfig) withDefaults() ChatConfig {
	if c.Patience == 0 {
		c.Patience = 10 * time.Second
	}
	if c.Progress == nil {
		c.Progress = func(ChatMark) {}
	}
	c.Checked = min(c.Checked, c.Clients)
	return c
}

func (c ChatConfig) validate() error {
	switch {
	case c.Clients < 1 || c.Clients > 1<<16:
		return fmt.Errorf("bench: %d clients: want 1 to 65536", c.Clients)
	case c.Payload < MinChat || c.Payload > MaxChat:
		return fmt.Errorf("bench: a chat of %d bytes: want %d to %d", c.Payload, MinChat, MaxChat)
	case c.Rate < 0:
		return fmt.Errorf("bench: a rate of %g messages/s: want 0 or more", c.Rate)
	case c.Session > 0 && c.Checked < c.Clients:
		return fmt.Errorf("bench: %d of %d clients are checked: where memberships end, all have to be", c.Checked, c.Clients)
	}
	return nil
}

// moving reports whether memberships end during the run. Then the expected
// chats must be computed for each membership.
func (c ChatConfig) moving() bool { return c.Session > 0 }

// ChatMark is the state of a run at one moment: counts since its start.
type ChatMark struct {
	At          time.Duration
	Sent        int // chats
	Deliveries  int // chats that arrived at a client
	Bytes       int // that clients have read after the handshake: WebSocket frames with their headers, before TLS
	Connections int
	Open        int // not a count: the number of members at this moment
	Errors      int
}

// ChatResult is what a chat run saw.
type ChatResult struct {
	// Started is the time that all other times count from.
	Started time.Time
	// HoldStart and HoldEnd limit the time in which all clients were members.
	// End is when the last connection was closed.
	HoldStart, HoldEnd, End ChatMark
	// Marks are taken each second.
	Marks []ChatMark
	// Peak is the largest number of members.
	Peak int

	// Expected is how many deliveries were due. If memberships last for the
	// whole run: the chats sent during the hold, to every client. Otherwise:
	// the chats sent between a quarter of a second after a membership was
	// confirmed and one second before its end. Received is how many of those
	// arrived.
	Expected, Received int
	// Checked has the counts of the checked clients, also outside the ramps.
	Checked Deliveries
	// Missed is the number of messages that the server reported as skipped.
	Missed int
	// Unsent is the number of chats that were due in the hold, and that the
	// kernel had not accepted at the end.
	Unsent int

	// Errors by kind: connect, join, read, write, protocol, close.
	Errors map[string]int
	// FirstError describes the first of each kind.
	FirstError map[string]string

	// Latency runs from the time at which a chat was due to its arrival at the
	// checked clients: in the hold, or in the whole run if memberships end.
	Latency *Histogram
	// Connect is how long each connection took to open, handshake included.
	Connect *Histogram
	// Late is how much later than due the chats were given to the kernel.
	Late *Histogram
}

// Lost is how many of the expected deliveries never came.
func (r ChatResult) Lost() int { return max(r.Expected-r.Received, r.Checked.Lost()) }

// Deliveries has the counts of the clients that check every message.
type Deliveries struct {
	Expected, Received    int // within each membership
	Duplicated, Reordered int // of everything that arrived
}

func (d *Deliveries) add(other Deliveries) {
	d.Expected += other.Expected
	d.Received += other.Received
	d.Duplicated += other.Duplicated
	d.Reordered += other.Reordered
}

// Lost is how many of the expected never came.
func (d Deliveries) Lost() int { return d.Expected - d.Received }

// Append adds the result of a later run on the same server, as if both were one
// run. The hold then ends with that of the later run.
func (r *ChatResult) Append(next ChatResult) {
	before, offset := r.End, next.Started.Sub(r.Started)
	later := func(m ChatMark) ChatMark {
		m.At += offset
		m.Sent += before.Sent
		m.Deliveries += before.Deliveries
		m.Bytes += before.Bytes
		m.Connections += before.Connections
		m.Errors += before.Errors
		return m
	}
	for _, m := range next.Marks {
		r.Marks = append(r.Marks, later(m))
	}
	r.HoldEnd, r.End = later(next.HoldEnd), later(next.End)
	r.Peak = max(r.Peak, next.Peak)
	r.Expected += next.Expected
	r.Received += next.Received
	r.Checked.add(next.Checked)
	r.Missed += next.Missed
	r.Unsent += next.Unsent
	for kind, n := range next.Errors {
		if r.Errors[kind] == 0 {
			r.FirstError[kind] = next.FirstError[kind]
		}
		r.Errors[kind] += n
	}
	r.Latency.Merge(next.Latency)
	r.Connect.Merge(next.Connect)
	r.Late.Merge(next.Late)
}
