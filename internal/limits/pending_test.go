package limits

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"
)

// pendingOf accepts n sockets from an address. It returns those that were accepted, and a channel that gets the address when one of them is ended.
func pendingOf(r *Registry, peer string, n int, ended chan<- string) (all []*Conn) {
	for range n {
		if c, why := r.accept(addr(peer), func() { ended <- peer }); why == None {
			all = append(all, c)
		}
	}
	return all
}

// TestPending_MakesRoom: silent sockets from many addresses keep no other client out, although they take all places. The address with the most of
// them loses its oldest one.
func TestPending_MakesRoom(t *testing.T) {
	t.Parallel()
	r := New(Config{Pending: 100})
	ended := make(chan string, 100)
	for i := range 9 {
		pendingOf(r, fmt.Sprintf("192.0.2.%d", i), 10, ended)
	}
	oldest := pendingOf(r, "192.0.2.100", 11, ended)
	if s := r.Stats(); s.Pending != 100 {
		t.Fatalf("%+v, want 100 pending: one was refused", s)
	}
	most := pendingOf(r, "192.0.2.100", 1, ended)
	if len(oldest) != 10 || len(most) != 0 || r.Ended() != 0 {
		t.Fatalf("the address that has as many as the others got %d, %d were ended", len(oldest)+len(most), r.Ended())
	}
	one := pendingOf(r, "198.51.100.1", 1, ended)
	if len(one) != 1 {
		t.Fatal("a new client was refused")
	}
	if got := <-ended; got != "192.0.2.0" {
		t.Errorf("a socket of %s was ended, want one of the first address that has the most", got)
	}
	if why := one[0].Handshake(Client{Address: addr("198.51.100.1")}, true); why != None {
		t.Errorf("its handshake: %v", why)
	}
	if s := r.Stats(); s.Pending != 100 || s.Sockets != 100 {
		t.Errorf("%+v, want 100", s)
	}
}

// TestPending_OldMakeRoom: if all addresses have one pending socket each, a new one is refused while all are young, and takes the place of the oldest
// later. A socket that is known keeps its place.
func TestPending_OldMakeRoom(t *testing.T) {
	t.Parallel()
	r := New(Config{Pending: 50})
	now := time.Unix(1000, 0)
	r.now = func() time.Time { return now }
	ended := make(chan string, 100)
	var first *Conn
	for i := range 50 {
		c := pendingOf(r, fmt.Sprintf("192.0.2.%d", i), 1, ended)[0]
		if i == 0 {
			first = c
		}
		now = now.Add(time.Millisecond)
	}
	first.Known()
	pendingOf(r, "192.0.2.0", 1, ended) // in its place
	if got := pendingOf(r, "198.51.100.1", 1, ended); len(got) != 0 || r.Refused(Pending) != 1 {
		t.Fatalf("%d accepted, %d refused, want a refusal while all are young", len(got), r.Refused(Pending))
	}
	now = now.Add(pendingPatience - 40*time.Millisecond)
	if got := pendingOf(r, "198.51.100.1", 1, ended); len(got) != 1 {
		t.Fatal("the new client was refused")
	}
	if got := <-ended; got != "192.0.2.1" {
		t.Errorf("the socket of %s was ended, want the oldest one that is pending", got)
	}
	if s := r.Stats(); s.Pending != 50 || s.Sockets != 51 {
		t.Errorf("%+v", s)
	}
}

// TestPending_OfOwnAddress: the limit of an address stays one: a client does not end the handshakes of others at its address. A trusted proxy has no such
// limit: its sockets are those of many clients.
func TestPending_OfOwnAddress(t *testing.T) {
	t.Parallel()
	r := New(Config{Pending: 100, Proxies: Proxies{netip.MustParsePrefix("10.0.0.0/8")}})
	if got := pendingOf(r, "10.0.0.1", AddressPending+1, nil); len(got) != AddressPending+1 {
		t.Errorf("%d accepted of a proxy", len(got))
	}
	if got := pendingOf(r, "192.0.2.1", AddressPending+1, nil); len(got) != AddressPending || r.Refused(PendingAddress) != 1 {
		t.Errorf("%d accepted, %d refused", len(got), r.Refused(PendingAddress))
	}
}

// TestListener_EndsPending: the socket that makes room is closed, and the new one is accepted.
func TestListener_EndsPending(t *testing.T) {
	t.Parallel()
	r := New(Config{Pending: 2})
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := r.Listener(plain)
	defer l.Close()
	dial := func(from string) (client, server net.Conn) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Skipf("no connection from %s here: %v", from, err)
		}
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); server.Close() })
		return client, server
	}
	first, itsEnd := dial("127.0.0.1")
	second, _ := dial("127.0.0.1")
	_, third := dial("127.0.0.2")
	if _, err := first.Read(make([]byte, 1)); err == nil {
		t.Error("the oldest socket is open")
	}
	if itsEnd.Close(); r.Stats().Sockets != 2 {
		t.Errorf("%+v, want the two that are open", r.Stats())
	}
	for _, c := range []net.Conn{third, second} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("one of the others is closed: %v", err)
		}
	}
}
