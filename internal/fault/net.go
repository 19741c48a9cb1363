package fault

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"sync"
	"testing"
)

// Host is the index of the namespace of the test itself, which is reached by an address on the bridge.
const Host = -1

// maxNodes is how many nodes a Net may have: their addresses and that of the host are in a /24.
const maxNodes = 250

// Net is a network of nodes: network namespaces with one Ethernet link each, joined by a bridge, on which the test's own namespace has an address. So
// the test and its PostgreSQL reach the nodes at Addr(node), and the nodes reach them at Addr(Host). The settings and routes of the host are not
// changed, except that the bridge has its subnet. A node reaches only the other nodes and the host, and has its own loopback interface.
//
// Several processes, and several Nets of one process, can exist at a time. All methods are safe for concurrent use. Methods that take nodes panic if
// there is no such node. An error contains what ip or tc has printed.
type Net struct {
	slot   *slot
	subnet netip.Prefix
	nodes  int

	mu     sync.Mutex // guards the fields below, and is held while ip changes the network
	faults map[path]fault
	limits map[int]bool // nodes with a rate
	closed bool
}

// errClosed prevents what a closed Net would do to another one that has its names now.
var errClosed = errors.New("fault: the network is closed")

// path is one direction between two nodes, or between a node and Host.
type path struct{ from, to int }

// Require returns a Net that is closed at the end of the test. It skips the test if Available returns an error.
func Require(t testing.TB, nodes int) *Net {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
	n, err := NewNet(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// NewNet makes a network of nodes 0 to nodes-1, of which there are at most 250. It needs what Available checks. If the process ends without Close, the
// network stays until a later one takes its names and removes it.
func NewNet(nodes int) (*Net, error) {
	if nodes < 1 || nodes > maxNodes {
		return nil, fmt.Errorf("fault: a network of %d nodes: want 1 to %d", nodes, maxNodes)
	}
	s, subnet, err := takeSlot()
	if err != nil {
		return nil, err
	}
	n := &Net{slot: s, subnet: subnet, nodes: nodes, faults: make(map[path]fault), limits: make(map[int]bool)}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close removes the network. End the processes in it first: a namespace exists, without its link, as long as a process runs in it. It may be called again.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	return errors.Join(n.slot.clear(), n.slot.release())
}

// Addr returns the IPv4 address of a node, or of Host.
func (n *Net) Addr(node int) netip.Addr {
	last := byte(maxNodes + 1)
	if node != Host {
		n.check(node)
		last = byte(node + 1)
	}
	a := n.subnet.Addr().As4()
	a[3] = last
	return netip.AddrFrom4(a)
}

// Namespace returns the name of a node's network namespace, as ip netns has it.
func (n *Net) Namespace(node int) string {
	n.check(node)
	return n.slot.namespace(node)
}

// Command returns a command that runs in a node's namespace. It starts ip, which executes the program in its place, so that signals to the process
// reach the program. After Close, the command does not start.
func (n *Net) Command(node int, name string, args ...string) *exec.Cmd {
	cmd := n.command(node, name, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		cmd.Err = errClosed
	}
	return cmd
}

func (n *Net) command(node int, name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.Namespace(node), name}, args...)...)
}

func (n *Net) check(node int) {
	if node < 0 || node >= n.nodes {
		panic(fmt.Sprintf("fault: node %d of a network of %d", node, n.nodes))
	}
}

// build makes the namespaces first and the bridge afterwards, and clear removes them the other way round: see slot.leftOver.
func (n *Net) build() error {
	for node := range n.nodes {
		if err := ip("netns", "add", n.slot.namespace(node)); err != nil {
			return err
		}
	}
	// A bridge without an address of its own takes that of a port, and changes it when ports come and go, while nodes still know the old one.
	address := fmt.Sprintf("02:54:57:00:%02x:fe", n.slot.number)
	bridge := n.slot.bridge()
	err := batch("",
		fmt.Sprintf("link add %s address %s type bridge", bridge, address),
		fmt.Sprintf("addr add %s/%d dev %s", n.Addr(Host), n.subnet.Bits(), bridge),
		fmt.Sprintf("link set %s up", bridge))
	if err != nil {
		return err
	}
	for node := range n.nodes {
		if err := n.connect(node); err != nil {
			return err
		}
	}
	return nil
}

// connect links a node to the bridge.
func (n *Net) connect(node int) error {
	link, namespace := n.slot.link(node), n.slot.namespace(node)
	// With reverse path filtering, which a namespace may have from the host, a node would drop what comes from an address to which it has no
	// route: a cut in one direction would be one in both.
	const noFilter = `for f in /proc/sys/net/ipv4/conf/*/rp_filter; do read -r v <$f; [ "$v" = 0 ] || echo 0 >$f || exit 1; done`
	return errors.Join(
		batch("", fmt.Sprintf("link add %s type veth peer name %s netns %s", link, nodeLink, namespace)),
		run(n.command(node, "sh", "-c", noFilter)),
		batch(namespace,
			"link set lo up",
			fmt.Sprintf("addr add %s/%d dev %s", n.Addr(node), n.subnet.Bits(), nodeLink),
			fmt.Sprintf("link set %s up", nodeLink)),
		batch("", fmt.Sprintf("link set %s master %s up", link, n.slot.bridge())))
}
