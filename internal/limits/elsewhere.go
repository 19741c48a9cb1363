package limits

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// Several servers share the limits of a user. Each one tells the others, once a second, what the users that matter do on it: how many connections
// they have, and how much of their rate they use. So a user has its limit of connections on all servers together, and a server gives it the part of
// its rate that fits to what it uses there: the more of it a user has used on other servers in the last second, the less it gets here.
//
// The others do not know what a user does in the first second, nor what it does little of. So it may get somewhat more than its limits.
const (
	// notableShare is the part of a limit from which on a use is told.
	notableShare = 0.1
	// noteBytes is how long a note is at most, in bytes. Users that take less of their limits are left out.
	noteBytes = 511 << 10
	// noteLasts is for how long the last note of a server counts, and useLasts for how long its rates do: they change each second.
	noteLasts = 7 * time.Second
	useLasts  = 2500 * time.Millisecond
)

// use is what a user does on a server.
type use struct {
	User        string  `json:"u"`
	Connections int     `json:"c,omitempty"`
	Requests    float64 `json:"r,omitempty"` // a second
	Bytes       float64 `json:"b,omitempty"` // a second
}

// heardNote is the last note of another server.
type heardNote struct {
	at    time.Time
	users map[string]use
}

// note is what a server tells the others.
type note struct {
	Users []use `json:"users"`
}

// elsewhere is what the users do on other servers, and what of this server's users matters to them. The zero value is that of a single server.
type elsewhere struct {
	// Guarded by Registry.mu.
	shared   bool // there are other servers
	nodes    map[uint64]heardNote
	crowded  map[string]*user // users with a notable number of connections here
	adjusted map[string]*user // users that have only a part of their rate here
	noted    time.Time        // when the last note was made

	mu   sync.Mutex // guards the next field; no other lock is taken while it is held
	busy []string   // users that have used a notable part of their rate since the last note
}

// Share says that there may be other servers. Call it before the Registry is used.
func (r *Registry) Share() {
	r.elsewhere.shared, r.elsewhere.noted = true, r.now()
	r.elsewhere.nodes = make(map[uint64]heardNote)
	r.elsewhere.crowded, r.elsewhere.adjusted = make(map[string]*user), make(map[string]*user)
}

// notableConnections is the number of connections from which on they are told.
func (r *Registry) notableConnections() int {
	return max(int(notableShare*float64(r.cfg.UserConnections)), 1)
}

// watch makes the use of a new user known to the notes. r.mu is held.
func (r *Registry) watch(name string, u *user) {
	if r.elsewhere.shared && u.bucket != nil && strings.HasPrefix(name, userPrefix) {
		part := share{1, r.equalPart()}
		u.bucket.share(r.now(), part, part)
		u.bucket.notable = func() {
			r.elsewhere.mu.Lock()
			defer r.elsewhere.mu.Unlock()
			r.elsewhere.busy = append(r.elsewhere.busy, name)
		}
	}
}

// crowd keeps the list of users with many connections. r.mu is held.
func (r *Registry) crowd(name string, u *user) {
	switch {
	case !r.elsewhere.shared || r.cfg.UserConnections == 0:
	case u.sockets >= r.notableConnections():
		r.elsewhere.crowded[name] = u
	default:
		delete(r.elsewhere.crowded, name)
	}
}

// socketsElsewhere returns how many connections a user has on other servers, as far as it is known. r.mu is held.
func (r *Registry) socketsElsewhere(name string) (n int) {
	for _, heard := range r.elsewhere.nodes {
		n += heard.users[name].Connections
	}
	return n
}

// Note returns what the other servers should know. Call it once a second, and send it to all of them.
func (r *Registry) Note() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.uses()
	r.adjust(all)
	return r.encode(all)
}

// LastNote is Note for a server that stops: it has no users any more.
func (r *Registry) LastNote() []byte { return r.encode(nil) }

// encode encodes as much as a note may hold. The users that matter most come first.
func (r *Registry) encode(all []use) []byte {
	slices.SortFunc(all, func(a, b use) int { return cmp.Compare(r.weight(b), r.weight(a)) })
	text := []byte(`{"users":[`)
	for i, u := range all {
		one, _ := json.Marshal(u) // a string and finite numbers cannot fail
		if len(text)+len(one)+3 > noteBytes {
			break
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, one...)
	}
	return append(text, `]}`...)
}

// weight is how much of its limits a user takes: the part of the one of which it takes most.
func (r *Registry) weight(u use) float64 {
	part := func(n, limit float64) float64 {
		if limit <= 0 {
			return 0
		}
		return n / limit
	}
	return max(part(float64(u.Connections), float64(r.cfg.UserConnections)), part(u.Requests, UserShare*r.cfg.RequestRate), part(u.Bytes, UserShare*float64(r.cfg.ByteRate)))
}

// uses returns what users do here, as far as it is notable, and begins anew to measure. r.mu is held.
func (r *Registry) uses() (all []use) {
	e := &r.elsewhere
	now := r.now()
	passed := max(now.Sub(e.noted).Seconds(), 0.1)
	e.noted = now
	e.mu.Lock()
	names := e.busy
	e.busy = nil
	e.mu.Unlock()
	for name := range e.crowded {
		names = append(names, name)
	}
	for name := range e.adjusted {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		u := r.users[name]
		if u == nil {
			continue
		}
		one := use{User: name}
		if u.bucket != nil {
			requests, bytes := u.bucket.takeUsed()
			one.Requests, one.Bytes = requests/passed, bytes/passed
		}
		if u.sockets >= r.notableConnections() {
			one.Connections = u.sockets
		}
		all = append(all, one)
	}
	return all
}

// equalPart is the part of a limit that each server would have, if all had the same. r.mu is held.
func (r *Registry) equalPart() float64 { return 1 / float64(len(r.elsewhere.nodes)+1) }

// adjust gives each user the part of its rate that fits to its use here. r.mu is held.
func (r *Registry) adjust(here []use) {
	others := make(map[string]use)
	now := r.now()
	for node, heard := range r.elsewhere.nodes {
		if now.Sub(heard.at) > noteLasts {
			delete(r.elsewhere.nodes, node)
			continue
		}
		if now.Sub(heard.at) > useLasts {
			continue
		}
		for name, u := range heard.users {
			sum := others[name]
			others[name] = use{Requests: sum.Requests + u.Requests, Bytes: sum.Bytes + u.Bytes}
		}
	}
	own := make(map[string]use, len(here))
	for _, u := range here {
		own[u.User] = u
	}
	equal := r.equalPart()
	least := 0.5 * equal // so that it can begin to use something here
	// part returns which part of a rate a user has here, and which part of what a whole bucket holds: a user that does nothing here could
	// otherwise empty the buckets of all servers at once, again and again.
	part := func(own, others float64) (rate, size float64) {
		switch {
		case others > 0:
			rate = max(own/(own+others), least)
			return rate, rate
		case own > 0:
			return 1, 1
		}
		return 1, equal
	}
	adjusted := make(map[string]*user)
	set := func(name string, u *user) {
		if u == nil || u.bucket == nil {
			return
		}
		mine, o := own[name], others[name]
		var requests, bytes share
		requests.rate, requests.size = part(mine.Requests, o.Requests)
		bytes.rate, bytes.size = part(mine.Bytes, o.Bytes)
		u.bucket.share(now, requests, bytes)
		if idle := (use{User: mine.User}); mine != idle || o != (use{}) { // else it is as a new user
			adjusted[name] = u
		}
	}
	for name := range others {
		set(name, r.users[name])
	}
	for name := range r.elsewhere.adjusted {
		if _, told := others[name]; !told {
			set(name, r.users[name])
		}
	}
	for name := range own {
		if _, told := others[name]; !told && r.elsewhere.adjusted[name] == nil {
			set(name, r.users[name])
		}
	}
	r.elsewhere.adjusted = adjusted
}

// Hear takes the note of another server, in place of the one before. A malformed one counts as empty.
func (r *Registry) Hear(node uint64, text []byte) {
	var n note
	if json.Unmarshal(text, &n) != nil {
		n = note{}
	}
	heard := heardNote{r.now(), make(map[string]use, len(n.Users))}
	for _, u := range n.Users {
		heard.users[u.User] = use{Connections: max(u.Connections, 0), Requests: max(u.Requests, 0), Bytes: max(u.Bytes, 0)}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elsewhere.nodes[node] = heard
}
