package limits

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// servers are the registries of several servers that tell each other what their users do. Time moves by a tick at a time.
type servers struct {
	all []*Registry
	now time.Time
}

func newServers(n int, cfg Config) *servers {
	s := &servers{now: time.Unix(1000, 0)}
	for range n {
		r := New(cfg)
		r.now = func() time.Time { return s.now }
		r.Share()
		s.all = append(s.all, r)
	}
	return s
}

// exchange passes the notes of all servers, except those that are cut off.
func (s *servers) exchange(cut ...int) {
	off := make(map[int]bool)
	for _, n := range cut {
		off[n] = true
	}
	for from, r := range s.all {
		note := r.Note()
		for to, other := range s.all {
			if from != to && !off[from] && !off[to] {
				other.Hear(uint64(from), note)
			}
		}
	}
}

// meters returns a meter of one connection of the user on each server.
func (s *servers) meters(user string) (all []*Meter) {
	for _, r := range s.all {
		c := r.New()
		c.Handshake(Client{User: user}, false)
		all = append(all, c.Meter())
	}
	return all
}

// TestElsewhere_Connections: a user has its limit of connections on all servers together, as soon as they have told each other. What a
// server that is heard no more has said does not count for ever.
func TestElsewhere_Connections(t *testing.T) {
	t.Parallel()
	s := newServers(3, Config{UserConnections: 10})
	open := func(server int) (*Conn, Reason) {
		c := s.all[server].New()
		return c, c.Handshake(Client{User: "ann"}, false)
	}
	var first []*Conn
	for range 6 {
		c, why := open(0)
		if why != None {
			t.Fatalf("refused: %v", why)
		}
		first = append(first, c)
	}
	s.exchange()
	for n := range 4 {
		if _, why := open(1); why != None {
			t.Fatalf("connection %d: refused: %v", 7+n, why)
		}
	}
	s.exchange()
	for server := range 3 {
		if _, why := open(server); why != User {
			t.Errorf("connection 11 at server %d: %v, want user", server, why)
		}
	}
	if _, why := open(2); why != User {
		t.Errorf("another user: %v", why)
	}
	first[0].Close()
	first[1].Close()
	s.exchange()
	if _, why := open(2); why != None {
		t.Errorf("after two have ended: %v", why)
	}
	s.now = s.now.Add(noteLasts + time.Second)
	for range 3 {
		s.exchange(0) // nobody hears the first server any more
	}
	for n := range 5 {
		if _, why := open(2); why != None {
			t.Errorf("connection %d without those of the first server: %v", n, why)
		}
	}
}

// TestElsewhere_Rates: however a user spreads what it sends over several servers, it gets its rate, or little more, and if it sends enough,
// little less. What it sends changes at random.
func TestElsewhere_Rates(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 2 + random.IntN(5)
		rate := 50 * float64(1+random.IntN(20)) // of a user: 4 times that of a connection
		s := newServers(n, Config{RequestRate: rate / UserShare, ByteRate: 1 << 40, MaxMessage: 1 << 20})
		const ticks, each = 20, time.Second / 20 // in a second
		// Each server has enough connections that only the rate of the user counts.
		var all [][]*Meter
		for range UserShare {
			all = append(all, s.meters("ann"))
		}
		const settle, seconds = 10, 40
		wants := make([]float64, n)
		choose := func() {
			for i := range wants {
				wants[i] = 0
				if random.IntN(2) == 0 {
					wants[i] = rate * random.ExpFloat64()
				}
			}
		}
		choose()
		var got, least float64
		for second := range settle + seconds {
			if second%20 == 19 {
				choose()
			}
			wanted := 0.0
			for range ticks {
				s.now = s.now.Add(each)
				for server, want := range wants {
					for range int(want/ticks) + 1 {
						if want == 0 {
							break
						}
						wanted++
						if _, ok := all[random.IntN(UserShare)][server].Take(s.now, 10); ok && second >= settle {
							got++
						}
					}
				}
			}
			if second >= settle {
				least += min(wanted, rate)
			}
			s.exchange()
		}
		most := rate * seconds
		// A change may let servers spend what their buckets hold: two seconds of those where the user was, once.
		if bursts := 2 * rate * 4; got > most+bursts {
			t.Errorf("seed %d: %d servers, rate %.0f: got %.0f in %d s, want at most %.0f and bursts of %.0f", seed, n, rate, got, seconds, most, bursts)
		}
		if got < 0.8*least {
			t.Errorf("seed %d: %d servers, rate %.0f: got %.0f of %.0f in %d s", seed, n, rate, got, least, seconds)
		}
	}
}

// TestElsewhere_Bursts: a user that empties its buckets on all servers at once, and waits until they are full again, gets no more than its rate.
func TestElsewhere_Bursts(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5} {
		for _, pause := range []int{1, 3} {
			const rate, periods = 400, 30
			s := newServers(n, Config{RequestRate: rate / UserShare})
			s.exchange()
			var all [][]*Meter
			for range 4 * UserShare {
				all = append(all, s.meters("ann"))
			}
			got := 0
			for period := range 10 + periods {
				for range pause {
					s.now = s.now.Add(time.Second)
					s.exchange()
				}
				for _, meters := range all {
					for _, m := range meters {
						for ok := true; ok; {
							if _, ok = m.Take(s.now, 0); ok && period >= 10 {
								got++
							}
						}
					}
				}
			}
			most := rate * periods * pause
			if got > most+2*rate+most/20 || got < most/4 {
				t.Errorf("%d servers, each %d s: %d, want up to %d", n, pause, got, most)
			}
		}
	}
}

// TestElsewhere_SmallLimits: few connections count, too, and those of a server that stops are free at once.
func TestElsewhere_SmallLimits(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3, 5} {
		s := newServers(4, Config{UserConnections: limit})
		open, first := 0, 0
		for server := range s.all {
			for range 2 {
				if why := s.all[server].New().Handshake(Client{User: "ann"}, false); why == None {
					open++
					if server == 0 {
						first++
					}
				}
				s.exchange()
			}
		}
		if open != limit {
			t.Errorf("%d connections, want %d", open, limit)
		}
		s.all[3].Hear(0, s.all[0].LastNote())
		for n := range first {
			if why := s.all[3].New().Handshake(Client{User: "ann"}, false); why != None {
				t.Errorf("limit %d: connection %d of those of a server that has stopped: %v", limit, n, why)
			}
		}
	}
}

// TestElsewhere_Notes: notes are bounded, tell nothing of addresses, and malformed ones do no harm.
func TestElsewhere_Notes(t *testing.T) {
	t.Parallel()
	s := newServers(2, Config{UserConnections: 20, RequestRate: 100})
	r := s.all[0]
	for n := range 5_000 {
		for range 2 {
			r.New().Handshake(Client{User: fmt.Sprint("user with a long name ", n)}, false)
		}
	}
	c := r.New()
	c.Handshake(Client{}, false)
	note := r.Note()
	if len(note) > noteBytes || strings.Contains(string(note), "address") || len(note) < noteBytes/4 {
		t.Errorf("a note of %d bytes", len(note))
	}
	for _, text := range []string{"", "{", "null", "[]", `{"users":[{"u":1}]}`, `{"users":[{"u":"ann","c":-5,"r":-1e308,"b":1e308}]}`, `{"users":[{"u":"user ann","c":-5,"r":1e308,"b":1e308},{"u":"user ann","r":-1e308}]}`} {
		s.all[1].Hear(7, []byte(text))
		s.all[1].Note()
		m := s.meters("ann")[1]
		if _, ok := m.Take(s.now, 0); !ok {
			t.Errorf("after the note %s a user can send nothing", text)
		}
	}
}
