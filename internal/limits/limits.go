// Package limits bounds how many connections clients have, and how fast they send: in all, for each user, and for each client address.
//
// A server has one [Registry]. Each accepted socket has one [Conn], from [Registry.Listener] until the socket is closed, so that clients count which
// never finish a TLS handshake or an HTTP header. A WebSocket keeps the Conn of its socket. Each HTTP request in progress has a [Request].
//
// Until its client is known, a socket is pending. There are separate, smaller limits for pending ones. When they are reached, a new socket takes the
// place of a pending one of an address that has more of them, or of one that has been pending for long: silent clients keep nobody out.
//
// # Room for refusals
//
// A client is told why it is refused: with HTTP status 429. That needs a socket, so the listener accepts a few more than the limits
// allow. Sockets beyond these are closed at once.
//
// All methods are safe for concurrent use.
package limits

import (
	"container/list"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Config sets the limits. 0 is no limit.
type Config struct {
	// Connections is how many sockets there may be.
	Connections int
	// UserConnections is how many WebSockets a user may have, and how many HTTP requests in progress.
	UserConnections int
	// AddressConnections is the same for a client address.
	AddressConnections int
	// Pending is how many sockets there may be whose client is not known. If it is set, one address may have at most AddressPending of them.
	// If there are too many, a new one may take the place of another: see package limits.
	Pending int

	// RequestRate and ByteRate are how many requests and bytes a second a connection may send. A user may send UserShare times that on all
	// its connections, and by HTTP, together.
	RequestRate float64
	ByteRate    int64
	// UserQueries is how many requests of a user may ask the store at a time. The others wait.
	UserQueries int
	// MaxMessage is the largest message in bytes: a client may always send one at once.
	MaxMessage int

	// Log gets a line for each refusal. Defaults to none.
	Log *slog.Logger

	// Proxies are the proxies whose X-Forwarded-For is believed.
	Proxies Proxies
}

const (
	// AddressPending is how many sockets one address may have whose client is not known.
	AddressPending = 20
	// UserShare is how many times the rate of a connection a user has.
	UserShare = 4

	// freeRate bounds what takes nothing from the rate of requests: messages that only settle something cost one each, and refusals refusalCost. When a
	// connection has caused more a second, twice as much at once, the server reads slower. A user has UserShare times that. The bytes of what is refused
	// have a rate of their own, which is as high as that of bytes: to read them, and to inflate them, has cost as much as with others.
	freeRate    = 10_000
	refusalCost = 10

	// spare and addressSpare are how many more sockets the listener accepts than there may be, in all and for each address, so that
	// the others can be told.
	spare        = 100
	addressSpare = 20
)

// Reason is the limit that a connection or request would have exceeded.
type Reason uint8

// The reasons, with their names as labels of a metric.
const (
	None           Reason = iota
	Total                 // "total"
	User                  // "user"
	Address               // "address"
	Pending               // "pending"
	PendingAddress        // "pending_address"

	// Reasons is the number of reasons.
	Reasons = int(PendingAddress) + 1
)

var reasonNames = [Reasons]string{"", "total", "user", "address", "pending", "pending_address"}

func (r Reason) String() string { return reasonNames[r] }

// counts are how many there are: in all, of an address or of a user.
type counts struct {
	sockets  int
	pending  int // of them
	requests int // HTTP requests in progress
	queries  int // requests that ask the store, or wait for that; of a user
}

// Client is whose connection or request it is.
type Client struct {
	Address netip.Addr // the zero Addr if it has none
	User    string     // "" if it has no name: its rate is that of its address then
	// Service has neither a rate nor a limit as a user: it is a program that the operator has given an API key.
	Service bool
}

// place is where a Conn or Request counts.
type place struct {
	address netip.Addr // a key; the zero Addr counts for none
	user    string     // "" counts for none
	named   bool       // it is a user's name, and not that of an address
	pending bool
}

// userPrefix begins the names of users that are not addresses.
const userPrefix = "user "

func (c Client) place(pending bool) place {
	at := place{address: Key(c.Address), pending: pending}
	switch {
	case c.Service || pending:
	case c.User != "":
		at.user, at.named = userPrefix+c.User, true
	case at.address.IsValid():
		at.user = "address " + at.address.String()
	}
	return at
}

// Registry counts the connections and requests of a server.
type Registry struct {
	cfg Config
	log *Log
	now func() time.Time // of tests

	refused [Reasons]atomic.Uint64
	limited atomic.Uint64
	ended   atomic.Uint64

	mu        sync.Mutex
	waiting   list.List // of *Conn: the pending sockets that can be ended, the oldest first
	all       counts
	addresses map[netip.Addr]*counts
	users     map[string]*user
	idle      []idleUser // users without connections, in the order in which they are looked at again
	elsewhere elsewhere
}

// New returns a Registry.
func New(cfg Config) *Registry {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Registry{cfg: cfg, log: NewLog(cfg.Log), now: time.Now, addresses: make(map[netip.Addr]*counts), users: make(map[string]*user)}
}

// ClientAddress returns the address of a request's client. It is the zero Addr if it has none.
func (r *Registry) ClientAddress(req *http.Request) netip.Addr { return r.cfg.Proxies.Client(req) }

// Log returns the log of refusals.
func (r *Registry) Log() *Log { return r.log }

// Refused returns how many connections and requests were refused for a reason.
func (r *Registry) Refused(why Reason) uint64 { return r.refused[why].Load() }

// Limited returns how many messages and requests were over a rate.
func (r *Registry) Limited() uint64 { return r.limited.Load() }

// Ended returns how many pending sockets were ended in favour of others.
func (r *Registry) Ended() uint64 { return r.ended.Load() }

// Stats are the counts of a Registry.
type Stats struct {
	Sockets  int
	Pending  int // sockets whose client is not known
	Requests int // HTTP requests in progress
	// Addresses and Users are how many of each are known.
	Addresses, Users int
}

// Stats returns the counts.
func (r *Registry) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{r.all.sockets, r.all.pending, r.all.requests, len(r.addresses), len(r.users)}
}

// refuse counts a refusal, if there is one.
func (r *Registry) refuse(why Reason) Reason {
	if why != None {
		r.refused[why].Add(1)
	}
	return why
}

// over reports whether n is more than a limit allows.
func over(n, limit int) bool { return limit > 0 && n > limit }

// fits returns which limit one more socket would exceed. More are taken by the listener, which passes more than 0. r.mu is held.
func (r *Registry) fits(at place, more, addressMore int) Reason {
	var address counts
	if c := r.addresses[at.address]; c != nil {
		address = *c
	}
	switch {
	case r.cfg.Connections > 0 && over(r.all.sockets+1, r.cfg.Connections+more):
		return Total
	case r.cfg.AddressConnections > 0 && over(address.sockets+1, r.cfg.AddressConnections+addressMore):
		return Address
	case at.pending && over(r.all.pending+1, r.cfg.Pending):
		return Pending
	case at.pending && r.cfg.Pending > 0 && over(address.pending+1, AddressPending):
		return PendingAddress
	}
	return r.fitsUser(at)
}

// fitsUser is fits for the limit of a user alone. r.mu is held.
func (r *Registry) fitsUser(at place) Reason {
	if at.named && over(r.userCounts(at.user).sockets+r.socketsElsewhere(at.user)+1, r.cfg.UserConnections) {
		return User
	}
	return None
}

// add counts n sockets, or -1, at a place. r.mu is held.
func (r *Registry) add(at place, n int) {
	change := func(c *counts) {
		c.sockets += n
		if at.pending {
			c.pending += n
		}
	}
	change(&r.all)
	r.change(at, change)
}

// change changes the counts of an address and a user, and forgets those that are empty. r.mu is held.
func (r *Registry) change(at place, change func(*counts)) {
	if at.address.IsValid() {
		c := r.addresses[at.address]
		if c == nil {
			c = new(counts)
			r.addresses[at.address] = c
		}
		if change(c); *c == (counts{}) {
			delete(r.addresses, at.address)
		}
	}
	if at.user != "" {
		u := r.user(at.user)
		change(&u.counts)
		if at.named {
			r.crowd(at.user, u)
		}
		r.settle(at.user, u)
	}
}
