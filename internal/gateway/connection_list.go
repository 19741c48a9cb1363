package gateway

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// Lists of connections are for administrators who look for some of very many, such as 100,000. What a list costs:
//
//   - connections.mu, which each connection needs when it opens and ends, is held for portion connections at a time, some tens of microseconds.
//   - Each connection that is looked at has its own lock taken for a moment, to read what it has carried. To order by age needs none.
//   - To order by unsent bytes needs a system call for each. With 100,000 connections that is some 100 ms of one processor, and the other
//     orders are some 30 ms.
//   - Only those that are listed are described, at most maxListed. Nothing is kept between two lists.
//   - There is one list at a time: several consoles wait for each other.
const (
	maxListed = 500
	portion   = 256
)

// name returns the name of the connection, which no connection of another server, or of an earlier run of this one, has.
func (c *connection) name() string { return fmt.Sprintf("%s-%d", c.owner.run, c.number) }

// inPortions calls look for all connections, without a lock. One that opens or ends meanwhile may be left out.
func (c *connections) inPortions(look func(*connection)) {
	some := make([]*connection, 0, portion)
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.all { // others may change the map between two steps, as a loop may do itself
		if some = append(some, conn); len(some) < portion {
			continue
		}
		c.mu.Unlock()
		for _, conn := range some {
			look(conn)
		}
		some = some[:0]
		runtime.Gosched()
		c.mu.Lock()
	}
	c.mu.Unlock()
	for _, conn := range some {
		look(conn)
	}
	c.mu.Lock()
}

// find returns the connection of a name, or nil.
func (c *connections) find(name string) (found *connection) {
	c.inPortions(func(conn *connection) {
		if found == nil && conn.name() == name {
			found = conn
		}
	})
	return found
}

// ofUser returns a connection of a user, or nil.
func (c *connections) ofUser(user string) (found *connection) {
	c.inPortions(func(conn *connection) {
		if caller := conn.identity.caller.Load(); found == nil && caller != nil && caller.User == user {
			found = conn
		}
	})
	return found
}

// ranked is a connection with what it is ordered by.
type ranked struct {
	conn *connection
	by   int64
}

// orders are what connections can be ordered by, the largest first.
var orders = map[string]func(*connection, time.Time) int64{
	"newest":  func(c *connection, _ time.Time) int64 { return int64(c.number) },
	"slowest": func(c *connection, now time.Time) int64 { return int64(waiting(c.Traffic(), now)) },
	"unsent":  func(c *connection, _ time.Time) int64 { return int64(c.Backlog()) },
}

// waiting is how long the peer keeps a connection waiting.
func waiting(t websocket.Traffic, now time.Time) time.Duration {
	if t.Since.IsZero() {
		return 0
	}
	return max(now.Sub(t.Since), time.Millisecond)
}

// first returns the first connections in an order whose user contains a text, and how many there are. One without a user has the user "".
func (c *connections) first(most int, order, user string) (first []*connection, matching int) {
	by, now := orders[order], time.Now()
	var top []ranked
	cut := func() {
		slices.SortFunc(top, func(a, b ranked) int {
			return cmp.Or(cmp.Compare(b.by, a.by), cmp.Compare(b.conn.number, a.conn.number))
		})
		top = top[:min(len(top), most)]
	}
	c.inPortions(func(conn *connection) {
		if user != "" {
			caller := conn.identity.caller.Load()
			if caller == nil || !strings.Contains(caller.User, user) {
				return
			}
		}
		matching++
		if top = append(top, ranked{conn, by(conn, now)}); len(top) == 2*most {
			cut()
		}
	})
	cut()
	for _, one := range top {
		first = append(first, one.conn)
	}
	return first, matching
}

// shownConnection is what a list and the look at one connection tell.
type shownConnection struct {
	Connection  string    `json:"connection"`
	User        *string   `json:"user,omitempty"`
	Role        string    `json:"role,omitempty"`
	Address     string    `json:"address"`
	Client      string    `json:"client,omitempty"`
	Endpoint    string    `json:"endpoint"`
	Opened      time.Time `json:"opened"`
	MessagesIn  int64     `json:"messages_in"`
	MessagesOut int64     `json:"messages_out"`
	BytesIn     int64     `json:"bytes_in"`
	BytesOut    int64     `json:"bytes_out"`
	UnsentBytes int       `json:"unsent_bytes"`
	WaitingMS   int64     `json:"waiting_ms"`
}

// shown describes the connection.
func (c *connection) shown(now time.Time) shownConnection {
	t := c.Traffic()
	is := shownConnection{
		Connection: c.name(), Address: c.address.String(), Client: c.client.Value(), Endpoint: c.endpoint.Value(), Opened: c.began.UTC(),
		MessagesIn: t.MessagesIn, MessagesOut: t.MessagesOut, BytesIn: t.BytesIn, BytesOut: t.BytesOut,
		UnsentBytes: c.Backlog(), WaitingMS: waiting(t, now).Milliseconds(),
	}
	if caller := c.identity.caller.Load(); caller != nil {
		is.User, is.Role = &caller.User, caller.Role
	}
	return is
}

// listedConnection is a connection with how much it has.
type listedConnection struct {
	shownConnection
	Subscriptions int `json:"subscriptions"`
	Consumers     int `json:"consumers"`
	Rooms         int `json:"rooms"`
}

func (c *connection) listed(now time.Time) listedConnection {
	is := listedConnection{shownConnection: c.shown(now)}
	if s := c.session.Load(); s != nil {
		s.mu.Lock()
		is.Subscriptions, is.Consumers = len(s.subscriptions), len(s.consumers)
		s.mu.Unlock()
	}
	if p := c.participant.Load(); p != nil {
		is.Rooms = len(p.roomNames())
	}
	return is
}

// held is what a connection has, besides its requests in progress.
type held struct {
	Subscriptions []shownSubscription `json:"subscriptions"`
	Consumers     []string            `json:"consumers"`
	Rooms         []string            `json:"rooms"`
}

// shownSubscription is of a stream or of an event store.
type shownSubscription struct {
	Subscription string `json:"subscription"`
	Stream       string `json:"stream,omitempty"`
	Group        string `json:"group,omitempty"`
	Store        string `json:"store,omitempty"`
}

// holds returns what the connection has. It waits for no request of the client.
func (c *connection) holds() held {
	has := held{Subscriptions: []shownSubscription{}, Consumers: []string{}, Rooms: []string{}}
	if s := c.session.Load(); s != nil {
		s.mu.Lock()
		for _, sub := range s.subscriptions {
			has.Subscriptions = append(has.Subscriptions, sub.shown())
		}
		for queue := range s.consumers {
			has.Consumers = append(has.Consumers, queue)
		}
		s.mu.Unlock()
	}
	if p := c.participant.Load(); p != nil {
		has.Rooms = append(has.Rooms, p.roomNames()...)
	}
	slices.SortFunc(has.Subscriptions, func(a, b shownSubscription) int { return strings.Compare(a.Subscription, b.Subscription) })
	slices.Sort(has.Consumers)
	slices.Sort(has.Rooms)
	return has
}
