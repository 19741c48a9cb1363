package bench

import (
	"fmt"
	"time"
)

// ChatConfig says what chat load to make. All clients are members of the
// public room. Times are from the start of the run.
type ChatConfig struct {
	// URL of the WebSocket.
	URL string
	// Clients is the number of connections, at most 65,536.
	Clients int
	// Ramp is the time over which they connect. 0 means as fast as they can.
	Ramp time.Duration
	// Hold is how long the load lasts once all are members.
	Hold time.Duration
	// Down is the time over which they leave at the end.
	Down time.Duration
	// Rate is how many chats a second each member says, at times fixed in
	// advance and spread evenly over the clients (open loop).
	Rate float64
	// Greet has every member say one thing after it has joined.
	Greet bool
	// Session is how long a membership lasts. Defaults to the whole run.
	Session time.Duration
	// Return is until when a client comes back whose Session has ended; later
	// ones stay until the end.
	Return time.Duration
	// Payload is the size of a chat's JSON in bytes, MinChat to MaxChat.
	Payload int
	// Checked is how many clients look at each message they get: for loss,
	// duplicates and order by sender, and how long it took. The others count.
	Checked int
	// Patience is how long a client waits for an answer, and the end of the run
	// for what is under way. Defaults to 10 s.
	Patience time.Duration
	// Progress is told every two seconds what happened so far. It is called by
	// the goroutine that makes the load.
	Progress func(ChatMark)
	// Progress shows how far the load is. Defaults to none.
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

// moving reports whether memberships end during the run, so that what a client
// is to get is known for each membership alone.
func (c ChatConfig) moving() bool { return c.Session > 0 }

// ChatMark is the state of a run at one moment: counts since its start.
type ChatMark struct {
	At          time.Duration
	Sent        int // chats
	Deliveries  int // chats that arrived at a client
	Connections int
	Open        int // not a count: members at this moment
	Errors      int
}

// ChatResult is what a chat run saw.
type ChatResult struct {
	// Started is what every time is counted from.
	Started time.Time
	// HoldStart and HoldEnd bound the time in which all clients were members;
	// End is when the last connection had gone.
	HoldStart, HoldEnd, End ChatMark
	// Marks are taken each second.
	Marks []ChatMark
	// Peak is the largest number of members.
	Peak int

	// Expected is how many deliveries were due. With lasting memberships: of
	// the chats said during the hold, to every client. Otherwise: of the chats
	// said from a quarter of a second after a membership was confirmed to one
	// second before its end. Received is how many of those arrived.
	Expected, Received int
	// Checked counts, beside ramps, what the checked clients looked at.
	Checked Deliveries
	// Missed is how many messages the server said that it left out.
	Missed int
	// Unsent is how many chats were due in the hold and not handed to the
	// kernel in the end.
	Unsent int

	// Errors by kind: connect, join, read, write, protocol, close.
	Errors map[string]int
	// FirstError describes the first of each kind.
	FirstError map[string]string

	// Latency runs from the time a chat was to be said to its arrival at the
	// checked clients: in the hold, or in the whole run where memberships end.
	Latency *Histogram
	// Connect is how long each connection took to open, handshake included.
	Connect *Histogram
	// Late is how much later than intended chats were handed to the kernel.
	Late *Histogram
}

// Lost is how many of the expected deliveries never came.
func (r ChatResult) Lost() int { return max(r.Expected-r.Received, r.Checked.Lost()) }

// Deliveries is what clients that look at every message found.
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

// Append joins the result of a run that followed on the same server, as if
// both were one: the hold reaches to the end of the second.
func (r *ChatResult) Append(next ChatResult) {
	before, offset := r.End, next.Started.Sub(r.Started)
	later := func(m ChatMark) ChatMark {
		m.At += offset
		m.Sent += before.Sent
		m.Deliveries += before.Deliveries
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
