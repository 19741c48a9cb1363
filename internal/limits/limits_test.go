package limits

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// TestKey: IPv4 counts alone, however it is written; IPv6 by its /64, without its zone.
func TestKey(t *testing.T) {
	t.Parallel()
	for a, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "2001:db8:1:2::": "2001:db8:1:2::",
		"fe80::1%eth0": "fe80::", "::1": "::",
	} {
		if got := Key(addr(a)); got != addr(want) {
			t.Errorf("%s counts as %s, want %s", a, got, want)
		}
	}
	if got := Key(netip.Addr{}); got.IsValid() {
		t.Errorf("no address counts as %s", got)
	}
}

// TestProxies_Client: X-Forwarded-For counts only after trusted proxies, from the right, up to the first foreign or malformed entry.
func TestProxies_Client(t *testing.T) {
	t.Parallel()
	trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"192.0.2.1:5", []string{"198.51.100.9"}, "192.0.2.1"}, // no proxy
		{"10.1.1.1:5", nil, "10.1.1.1"},
		{"10.1.1.1:5", []string{"198.51.100.9"}, "198.51.100.9"},
		{"10.1.1.1:5", []string{"1.2.3.4, 198.51.100.9"}, "198.51.100.9"}, // the client has written the first
		{"10.1.1.1:5", []string{"1.2.3.4", "198.51.100.9 , 10.2.2.2"}, "198.51.100.9"},
		{"10.1.1.1:5", []string{"1.2.3.4, 10.3.3.3", "10.2.2.2"}, "1.2.3.4"},
		{"10.1.1.1:5", []string{"1.2.3.4, unknown, 10.2.2.2"}, "10.2.2.2"},
		{"10.1.1.1:5", []string{""}, "10.1.1.1"},
		{"10.1.1.1:5", []string{"198.51.100.9:4711"}, "198.51.100.9"},
		{"10.1.1.1:5", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"10.1.1.1:5", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.1.1.1:5", []string{"::ffff:198.51.100.9"}, "198.51.100.9"},
		{"[::ffff:10.1.1.1]:5", []string{"198.51.100.9"}, "198.51.100.9"},
		{"@", []string{"198.51.100.9"}, ""},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.lines}}
		got := trusted.Client(r)
		if (c.want == "") == got.IsValid() || got.IsValid() && got != addr(c.want) {
			t.Errorf("peer %s, header %q: %s, want %q", c.peer, c.lines, got, c.want)
		}
	}
}

// TestParseNetwork: a network matches the addresses in it, however it is written.
func TestParseNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.1.2.3/8": "10.0.0.0/8", "10.0.0.1": "10.0.0.1/32", "::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:10.0.0.1": "10.0.0.1/32",
		"::ffff:0:0/96": "0.0.0.0/0", "fd00::1/8": "fd00::/8", "::1": "::1/128", "fe80::1%eth0": "fe80::1/128",
		"::ffff:10.0.0.0/95": "", "10.0.0.0/33": "", "10.0.0": "", "": "", "::ffff:10.0.0.0/129": "",
	} {
		got, err := ParseNetwork(text)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%q is %v, %v; want %q", text, got, err, want)
		}
		if err == nil && !(Proxies{got}).Trusts(got.Addr()) {
			t.Errorf("%q does not match %s", text, got.Addr())
		}
	}
}

// model counts in the plainest way: it walks everything that is open.
type model struct {
	conns    map[*Conn]modelConn
	requests map[*Request]place
}

type modelConn struct{ at, home place }

func (m *model) stats() (s Stats, addresses map[netip.Addr]counts, users map[string]counts) {
	addresses, users = make(map[netip.Addr]counts), make(map[string]counts)
	count := func(at place, n counts) {
		if at.address.IsValid() {
			c := addresses[at.address]
			addresses[at.address] = counts{c.sockets + n.sockets, c.pending + n.pending, c.requests + n.requests, 0}
		}
		if at.user != "" {
			c := users[at.user]
			users[at.user] = counts{c.sockets + n.sockets, c.pending + n.pending, c.requests + n.requests, 0}
		}
		s.Sockets, s.Pending, s.Requests = s.Sockets+n.sockets, s.Pending+n.pending, s.Requests+n.requests
	}
	for _, c := range m.conns {
		n := counts{sockets: 1}
		if c.at.pending {
			n.pending = 1
		}
		count(c.at, n)
	}
	for _, at := range m.requests {
		count(at, counts{requests: 1})
	}
	return s, addresses, users
}

// TestRegistry_Model: after any operations the counts are those of what is open, no limit is exceeded, and nothing is left at the end.
func TestRegistry_Model(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 7))
		cfg := Config{
			Connections: r.IntN(3) * 40, UserConnections: r.IntN(4), AddressConnections: r.IntN(3) * 8, Pending: r.IntN(3) * 30,
			RequestRate: float64(r.IntN(2)), Proxies: Proxies{netip.MustParsePrefix("10.0.0.0/8")},
		}
		drive(t, New(cfg), r, 800)
	}
}

func drive(t *testing.T, reg *Registry, r *rand.Rand, steps int) {
	now := time.Unix(1000, 0)
	reg.now = func() time.Time { return now }
	m := &model{make(map[*Conn]modelConn), make(map[*Request]place)}
	var conns []*Conn
	var requests []*Request
	client := func() Client {
		c := Client{Address: addr([]string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"}[r.IntN(4)]), Service: r.IntN(8) == 0}
		if r.IntN(3) > 0 {
			c.User = string(rune('a' + r.IntN(4)))
		}
		return c
	}
	for range steps {
		now = now.Add(time.Duration(r.IntN(200)) * time.Millisecond)
		var c *Conn
		if len(conns) > 0 {
			c = conns[r.IntN(len(conns))]
		}
		switch op := r.IntN(8); {
		case op == 0 || c == nil:
			peer := addr([]string{"192.0.2.1", "192.0.2.2", "10.0.0.1", "2001:db8::3"}[r.IntN(4)])
			if c, why := reg.accept(peer, func() {}); why == None {
				conns, m.conns[c] = append(conns, c), modelConn{c.at, c.at}
			}
		case op == 1:
			of, pending := client(), r.IntN(3) == 0
			if c.Handshake(of, pending) == None {
				m.conns[c] = modelConn{of.place(pending), m.conns[c].home}
			}
		case op == 2:
			if of := client(); c.Identify(of) == None {
				m.conns[c] = modelConn{of.place(false), m.conns[c].home}
			}
		case op == 3:
			c.Known()
			both := m.conns[c]
			both.at.pending, both.home.pending = false, false
			m.conns[c] = both
		case op == 4:
			c.Undo()
			both := m.conns[c]
			m.conns[c] = modelConn{c.home, both.home}
			if c.home != both.home {
				t.Fatalf("home is %v, want %v", c.home, both.home)
			}
		case op == 5:
			c.Close()
			c.Close()
			delete(m.conns, c)
			conns = remove(conns, c)
		case op == 6:
			of := client()
			if q, why := reg.Begin(of); why == None {
				requests, m.requests[q] = append(requests, q), of.place(false)
			}
		case len(requests) > 0:
			q := requests[r.IntN(len(requests))]
			q.End()
			delete(m.requests, q)
			requests = remove(requests, q)
		}
		for c := range m.conns {
			if c.closed { // in favour of another
				delete(m.conns, c)
				conns = remove(conns, c)
			}
		}
		agree(t, reg, m)
	}
	for _, c := range conns {
		c.Close()
	}
	for _, q := range requests {
		q.End()
	}
	now = now.Add(time.Hour)
	reg.mu.Lock()
	reg.forget(now)
	reg.mu.Unlock()
	if s := reg.Stats(); s != (Stats{}) || reg.waiting.Len() != 0 {
		t.Errorf("left: %+v, %d waiting", s, reg.waiting.Len())
	}
}

func remove[T comparable](list []T, x T) []T {
	for i, y := range list {
		if x == y {
			list[i] = list[len(list)-1]
			return list[:len(list)-1]
		}
	}
	return list
}

// agree compares the registry with the model, and with its limits.
func agree(t *testing.T, reg *Registry, m *model) {
	t.Helper()
	want, addresses, users := m.stats()
	got := reg.Stats()
	want.Addresses, want.Users = len(addresses), got.Users
	listed := 0
	for c := range m.conns {
		if c.element != nil {
			listed++
		}
		if can := c.at.pending && c.at.address.IsValid() && c.abort != nil; can != (c.element != nil) {
			t.Fatalf("%+v: listed as pending is %v", c.at, !can)
		}
	}
	if reg.waiting.Len() != listed {
		t.Fatalf("%d are listed as pending, want %d", reg.waiting.Len(), listed)
	}
	if got != want {
		t.Fatalf("counted %+v, want %+v", got, want)
	}
	for a, c := range addresses {
		if *reg.addresses[a] != c {
			t.Fatalf("%s: counted %+v, want %+v", a, *reg.addresses[a], c)
		}
		if over(c.sockets, reg.cfg.AddressConnections+addressSpare) && reg.cfg.AddressConnections > 0 {
			t.Fatalf("%s has %d sockets", a, c.sockets)
		}
	}
	for u, c := range users {
		if reg.users[u].counts != c {
			t.Fatalf("%s: counted %+v, want %+v", u, reg.users[u].counts, c)
		}
	}
	for u, c := range reg.users {
		if c.counts != users[u] {
			t.Fatalf("%s: counted %+v, want %+v", u, c.counts, users[u])
		}
		if u[0] == 'u' && (over(c.sockets, reg.cfg.UserConnections) || over(c.requests, reg.cfg.UserConnections)) {
			t.Fatalf("%s has %+v", u, c.counts)
		}
	}
	if reg.cfg.Connections > 0 && got.Sockets > reg.cfg.Connections+spare || over(got.Pending, reg.cfg.Pending) {
		t.Fatalf("over the limit: %+v", got)
	}
}

// TestUsers_BucketsStay: a user that connects again finds the bucket that it has emptied, and once it is full again the user is forgotten.
func TestUsers_BucketsStay(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 1})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	for i := range 2 * UserShare * 2 { // twice what one burst allows
		q, _ := r.Begin(Client{User: "ann"})
		if _, ok := q.Take(now, 0); ok != (i < 2*UserShare) {
			t.Fatalf("request %d: allowed is %v", i, ok)
		}
		q.End()
	}
	if s := r.Stats(); s.Users != 1 {
		t.Errorf("%d users are known, want 1", s.Users)
	}
	now = now.Add(time.Second)
	q, _ := r.Begin(Client{User: "bob"})
	q.End()
	if s := r.Stats(); s.Users != 1 {
		t.Errorf("%d users are known, want only the one whose bucket is not full", s.Users)
	}
	now = now.Add(time.Second + time.Millisecond)
	q, _ = r.Begin(Client{User: "carol"})
	q.End()
	if s := r.Stats(); s.Users != 0 {
		t.Errorf("%d users are known, want none: all buckets are full", s.Users)
	}
}

// TestUsers_InDebt: a user in debt is known until it owes nothing and its bucket is full.
func TestUsers_InDebt(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 1000, ByteRate: 1000, MaxMessage: 1000})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	q, _ := r.Begin(Client{User: "ann"})
	q.Owe(now, 100*UserShare*1000) // 100 s
	q.End()
	for _, passed := range []time.Duration{time.Second, 97 * time.Second} {
		now = now.Add(passed)
		q, _ = r.Begin(Client{User: "ann"})
		if wait, ok := q.Take(now, 1); ok {
			t.Errorf("a request is allowed after %v, with a debt of 98 s; wait %v", passed, wait)
		}
		q.End()
	}
	now = now.Add(3 * time.Second)
	q, _ = r.Begin(Client{User: "bob"})
	q.End()
	if s := r.Stats(); s.Users != 0 {
		t.Errorf("%d users are known", s.Users)
	}
}

// TestSettle_Debt: bytes of what settles something make the server rest, and a debt of a second at most, for a connection and by HTTP.
func TestSettle_Debt(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 1000, ByteRate: 8 << 20, MaxMessage: 1 << 20})
	now := time.Unix(1000, 0)
	connect := func() *Meter {
		c := r.New()
		c.Handshake(Client{User: "ann"}, false)
		return c.Meter()
	}
	loud, quiet := connect(), connect()
	q, _ := r.Begin(Client{User: "ann"})
	for range 5000 {
		loud.Settle(now, 1<<20)
		if rest := q.Settle(now, 1<<20); rest > time.Second+time.Millisecond {
			t.Fatalf("an HTTP request rests for %v", rest)
		}
	}
	if rest := loud.Rests().Sub(now); rest <= 0 || rest > time.Second+time.Millisecond {
		t.Errorf("after 5,000 MiB in no time the server rests for %v", rest)
	}
	if wait, ok := quiet.Take(now, 1); ok || wait > time.Second+time.Millisecond {
		t.Errorf("another connection of the user: allowed %v, and is told to wait for %v", ok, wait)
	}
}

// TestUsers_Bounded: the memory for users without connections is bounded.
func TestUsers_Bounded(t *testing.T) {
	t.Parallel()
	r := New(Config{RequestRate: 1})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	for i := range maxIdle + 1000 {
		q, _ := r.Begin(Client{User: string([]byte{byte(i), byte(i >> 8), byte(i >> 16)})})
		q.End()
	}
	if s := r.Stats(); s.Users > maxIdle || len(r.idle) > maxIdle {
		t.Errorf("%d users are remembered, want at most %d", s.Users, maxIdle)
	}
}

// TestRegistry_ManyNetworks: a client with many networks of IPv6 gets no more connections than the server has in all, and leaves nothing.
func TestRegistry_ManyNetworks(t *testing.T) {
	t.Parallel()
	const networks, most = 20_000, 500
	r := New(Config{Connections: most, AddressConnections: 2, Pending: most / 2})
	var open []*Conn
	refused := 0
	for i := range networks {
		address := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, byte(i >> 16), byte(i >> 8), byte(i), 15: byte(i)})
		c := r.New()
		if why := c.Handshake(Client{Address: address}, i%2 == 0); why != None {
			refused++
			c.Close()
			continue
		}
		open = append(open, c)
	}
	if len(open) > most || refused != networks-len(open) || len(r.addresses) > most {
		t.Errorf("%d open, %d refused, %d addresses are remembered", len(open), refused, len(r.addresses))
	}
	for _, c := range open {
		c.Close()
	}
	if len(r.addresses) != 0 || r.all != (counts{}) {
		t.Errorf("%d addresses are remembered, and %+v is counted", len(r.addresses), r.all)
	}
}
