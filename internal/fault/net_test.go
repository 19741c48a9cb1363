package fault

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// network returns a network with an agent on each node.
func network(t *testing.T, nodes int) (*Net, []*lineChild) {
	t.Helper()
	n := Require(t, nodes)
	var agents []*lineChild
	for node := range nodes {
		agents = append(agents, startAgent(t, n, node))
	}
	return n, agents
}

// echo opens the agent's connection, and sends a word there and back.
func echo(t *testing.T, n *Net, from *lineChild, to int) {
	t.Helper()
	from.expect("ok", "dial", agentAddr(n, to))
	from.expect("ok", "write", "hello")
	from.expect("hello", "read")
}

// dialNode connects the test, which is on the host, to a node's agent.
func dialNode(t *testing.T, n *Net, node int) *lineConn {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(within(t), "tcp", agentAddr(n, node))
	ok(t, err)
	t.Cleanup(func() { conn.Close() })
	ok(t, conn.SetDeadline(time.Now().Add(patience)))
	return &lineConn{Conn: conn, r: bufio.NewReader(conn)}
}

type lineConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *lineConn) write(t *testing.T, word string) {
	t.Helper()
	_, err := fmt.Fprintln(c, word)
	ok(t, err)
}

func (c *lineConn) read(t *testing.T, want string) {
	t.Helper()
	got, err := c.r.ReadString('\n')
	if err != nil || got != want+"\n" {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
}

// TestNet breaks and repairs one network in all ways.
func TestNet(t *testing.T) {
	n, agents := network(t, 3)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, n *Net, agents []*lineChild)
	}{{"cut one way", netCutOneWay}, {"reaches", netReaches}, {"cut", netCut}, {"drop", netDrop}, {"host", netHost}, {"down", netDown}} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, n, agents) }) {
			return
		}
	}
}

func netReaches(t *testing.T, n *Net, agents []*lineChild) {
	listener, err := net.Listen("tcp", netip.AddrPortFrom(n.Addr(Host), 0).String())
	ok(t, err)
	defer listener.Close()
	for node, a := range agents {
		for other := range agents {
			if other != node {
				echo(t, n, a, other)
			}
		}
		c := dialNode(t, n, node)
		c.write(t, "x")
		c.read(t, "x")
		a.expect("ok", "dial", listener.Addr().String())
	}
}

// isRefused fails the test unless a dial has failed because of a blackhole route.
func isRefused(t *testing.T, answer string) {
	t.Helper()
	if !strings.Contains(answer, syscall.EINVAL.Error()) {
		t.Fatalf("%q, want %q", answer, syscall.EINVAL)
	}
}

func netCut(t *testing.T, n *Net, agents []*lineChild) {
	echo(t, n, agents[0], 1)
	before := agents[1].ask("received")
	ok(t, n.Cut(0, 1))
	ok(t, n.Cut(1, 0))
	agents[0].expect("ok", "write", "during")
	isRefused(t, agents[0].ask("send", agentAddr(n, 1), "x"))
	isRefused(t, agents[1].ask("dial", agentAddr(n, 0)))
	agents[1].expect(before, "received")
	echo(t, n, agents[1], 2) // a third node is not affected
	for node := range agents {
		c := dialNode(t, n, node)
		c.write(t, "x")
		c.read(t, "x")
	}
	ok(t, n.Heal(1, 0))
	ok(t, n.Heal(0, 1))
	agents[0].expect("during", "read")
	echo(t, n, agents[1], 0)
}

// netCutOneWay begins with the cut, so that neither node knows the other's Ethernet address.
func netCutOneWay(t *testing.T, n *Net, agents []*lineChild) {
	ok(t, n.CutOneWay(0, 1))
	isRefused(t, agents[0].ask("send", agentAddr(n, 1), "lost"))
	deliver(t, agents[1], agents[0], agentAddr(n, 0), "arrives")
	isRefused(t, agents[0].ask("dial", agentAddr(n, 1)))
	agents[1].expect("false", "has", "lost")
	ok(t, n.HealAll())
	deliver(t, agents[0], agents[1], agentAddr(n, 1), "healed")
	agents[1].expect("false", "has", "lost")
}

func netDrop(t *testing.T, n *Net, agents []*lineChild) {
	echo(t, n, agents[0], 1)
	before := agents[1].ask("received")
	ok(t, n.DropOneWay(0, 1))
	agents[0].expect("ok", "send", agentAddr(n, 1), "lost")
	agents[0].expect("ok", "write", "during")
	deliver(t, agents[1], agents[0], agentAddr(n, 0), "arrives too")
	agents[1].expect("false", "has", "lost")
	agents[1].expect(before, "received")
	ok(t, n.Drop(0, 1))
	agents[1].expect("ok", "send", agentAddr(n, 0), "lost")
	agents[0].expect("false", "has", "lost")
	ok(t, n.CutOneWay(0, 1)) // in place of the drop
	isRefused(t, agents[0].ask("send", agentAddr(n, 1), "refused"))
	ok(t, n.Heal(0, 1))
	agents[0].expect("during", "read")
	deliver(t, agents[0], agents[1], agentAddr(n, 1), "whole")
	deliver(t, agents[1], agents[0], agentAddr(n, 0), "whole")
	agents[1].expect("false", "has", "lost")
}

// netHost cuts a node from the host, by each kind of cut.
func netHost(t *testing.T, n *Net, agents []*lineChild) {
	for _, cut := range []func(a, b int) error{n.Cut, n.Drop, n.CutOneWay, n.DropOneWay} {
		c := dialNode(t, n, 0)
		c.write(t, "before")
		c.read(t, "before")
		received := agents[0].ask("received")
		ok(t, cut(Host, 0))
		c.write(t, "during")
		agents[0].expect(received, "received")
		echo(t, n, agents[1], 0) // the other node reaches it
		ok(t, n.Heal(0, Host))
		c.read(t, "during")
	}
}

func netDown(t *testing.T, n *Net, agents []*lineChild) {
	echo(t, n, agents[0], 1)
	echo(t, n, agents[1], 2)
	before := agents[1].ask("received")
	ok(t, n.Down(1))
	agents[0].expect("ok", "write", "during")
	agents[1].expect("ok", "write", "too")
	agents[1].expect(before, "received")
	echo(t, n, agents[2], 0)
	ok(t, n.Up(1))
	agents[0].expect("during", "read")
	agents[1].expect("too", "read")
	echo(t, n, agents[2], 1)
}

func isEmpty(t *testing.T, s *slot) {
	t.Helper()
	links, err := s.links()
	ok(t, err)
	namespaces, err := s.namespaces()
	ok(t, err)
	if len(links)+len(namespaces) > 0 {
		t.Fatalf("left: %q, %q", links, namespaces)
	}
}

// netMain makes a network and waits to be killed.
func netMain() {
	n, err := NewNet(2)
	exitOn(err)
	fmt.Println(n.slot.number)
	forever()
}

// TestNetLeftOver: the next owner of a slot removes what a killed process has left.
func TestNetLeftOver(t *testing.T) {
	Require(t, 1)
	s := startLines(t, childCommand(t, "net"))
	number, err := strconv.Atoi(s.readLine())
	ok(t, err)
	s.Kill()
	owned, err := lockSlot(number)
	ok(t, err)
	if owned == nil {
		t.Skip("another process has taken the slot")
	}
	defer owned.release()
	if _, err := owned.prepare(); err != nil {
		t.Fatal(err)
	}
	isEmpty(t, owned)
}
