package fault

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/internal/testkit"
)

// agentPort is free in each namespace, since only the agent runs there.
const agentPort = "7000"

// agent is a node's child: an echo server at agentPort for TCP and UDP, and a client that the test commands by the child's standard input.
type agent struct {
	mu        sync.Mutex
	received  int // bytes by TCP
	datagrams []string
	conn      net.Conn // the client's
	answers   *bufio.Reader
}

// startAgent starts an agent on a node.
func startAgent(t *testing.T, n *Net, node int) *lineChild {
	t.Helper()
	s := startLines(t, asChild(n.Command(node, self(t)), "agent"))
	if got := s.readLine(); got != "ready" {
		t.Fatal(got)
	}
	return s
}

func agentAddr(n *Net, node int) string { return net.JoinHostPort(n.Addr(node).String(), agentPort) }

func agentMain() {
	a := &agent{}
	if os.Getenv("TIDEWIRE_FAULT_SILENT") == "" {
		listener, err := net.Listen("tcp", ":"+agentPort)
		exitOn(err)
		packets, err := net.ListenPacket("udp", ":"+agentPort)
		exitOn(err)
		go a.serve(listener)
		go a.collect(packets)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(a.do(strings.Fields(lines.Text())))
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (a *agent) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		exitOn(err)
		go io.Copy(conn, io.TeeReader(conn, a))
	}
}

// Write counts what the echo server receives.
func (a *agent) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.received += len(p)
	return len(p), nil
}

func (a *agent) collect(packets net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		size, _, err := packets.ReadFrom(buf)
		exitOn(err)
		a.mu.Lock()
		a.datagrams = append(a.datagrams, string(buf[:size]))
		a.mu.Unlock()
	}
}

// do carries out a command and returns its answer.
func (a *agent) do(words []string) string {
	switch words[0] {
	case "ping":
		return "pong"
	case "dial": // ADDRESS: opens the client's connection
		conn, err := net.DialTimeout("tcp", words[1], patience)
		if err != nil {
			return err.Error()
		}
		a.conn, a.answers = conn, bufio.NewReader(conn)
	case "write": // WORD
		if _, err := fmt.Fprintln(a.conn, words[1]); err != nil {
			return err.Error()
		}
	case "read": // a word that the other side has sent
		line, err := a.answers.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(line)
	case "send": // ADDRESS WORD: sends a datagram
		return sendDatagrams(words[1], []byte(words[2]), 1)
	case "received":
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Sprint(a.received)
	case "has": // WORD: whether such a datagram was received
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Sprint(slices.Contains(a.datagrams, words[1]))
	default:
		return "unknown: " + words[0]
	}
	return "ok"
}

func sendDatagrams(address string, datagram []byte, count int) string {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	for range count {
		if _, err := conn.Write(datagram); err != nil {
			return err.Error()
		}
	}
	return "ok"
}

// deliver sends a datagram again and again until it is received: UDP loses some.
func deliver(t *testing.T, from, to *lineChild, address, word string) {
	t.Helper()
	testkit.Eventually(t, "the datagram "+word+" arrives", func() bool {
		from.ask("send", address, word)
		return to.ask("has", word) == "true"
	})
}
