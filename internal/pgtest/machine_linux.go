package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Machine is a separate machine from the view of TCP: a network namespace with a proxy in it, connected to this namespace by a virtual cable (veth).
type Machine struct {
	Host  string // its address
	Port  int    // of the proxy
	space string
	cable string
}

// machines counts the Machines of this process.
var machines atomic.Int32

// machineMAC is the hardware address of each Machine.
const machineMAC = "02:00:00:00:00:02"

// StartMachine starts a machine that forwards bytes to a server's socket. It ends with the test. The test is skipped if this
// process may not make network namespaces: as an ordinary user, and in most containers.
func StartMachine(t testing.TB, network, address string) *Machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces are root's")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the machine lacks the command ip (package iproute2)")
	}
	n := machines.Add(1)
	// RFC 2544 keeps 198.18.0.0/15 for tests of networks.
	address4 := func(host int32) string { return fmt.Sprintf("198.18.%d.%d", os.Getpid()%256, 4*(n%64)+host) }
	m := &Machine{Host: address4(2), space: fmt.Sprintf("tidewire-%d-%d", os.Getpid(), n), cable: fmt.Sprintf("tw%dn%d", os.Getpid(), n)}
	if out, err := ip("netns", "add", m.space); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() {
		ip("link", "delete", m.cable)
		ip("netns", "delete", m.space)
	})
	for _, args := range [][]string{
		{"link", "add", m.cable, "type", "veth", "peer", "name", "eth0", "address", machineMAC, "netns", m.space},
		{"address", "add", address4(1) + "/30", "dev", m.cable},
		{"link", "set", m.cable, "up"},
		{"-n", m.space, "address", "add", m.Host + "/30", "dev", "eth0"},
		{"-n", m.space, "link", "set", "eth0", "up"},
		// Without this entry, packets to a vanished machine would fail with an error. So they get lost, as on the way to another network.
		{"neighbour", "replace", m.Host, "lladdr", machineMAC, "nud", "permanent", "dev", m.cable},
	} {
		if out, err := ip(args...); err != nil {
			t.Skipf("no network namespaces here: ip %s: %s", strings.Join(args, " "), out)
		}
	}
	l, err := m.listen()
	if err != nil {
		t.Fatal(err)
	}
	m.Port = serveProxy(t, l, network, address).Port
	return m
}

// Vanish makes the machine disappear: nothing answers at its address any more.
func (m *Machine) Vanish(t testing.TB) {
	t.Helper()
	if out, err := ip("-n", m.space, "address", "flush", "dev", "eth0"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func ip(args ...string) (out []byte, err error) { return exec.Command("ip", args...).CombinedOutput() }

// listen listens on the machine: a socket belongs to the namespace of the thread that has made it.
func (m *Machine) listen() (l net.Listener, err error) {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer here.Close()
	there, err := os.Open("/run/netns/" + m.space)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked if it cannot go back: the thread ends with the goroutine
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		l, err = net.Listen("tcp", m.Host+":0")
		if unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
	}()
	<-done
	return l, err
}
