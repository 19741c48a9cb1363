package multinode

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestForwarder: bytes pass both ways, an end passes on, and close ends all connections.
func TestForwarder(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	server, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go io.Copy(conn, conn)
		}
	}()
	f, err := forward(socket)
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", f.addr())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 5)
		conn.Write([]byte("hello"))
		if _, err := io.ReadFull(conn, b); err != nil || string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
		return conn
	}
	first, second := dial(), dial()
	first.Close()
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a connection outlives the forwarder: %v", err)
	}
	second.Close()
}

// TestThrough: a node with a network of its own gets the database's URL with another address.
func TestThrough(t *testing.T) {
	t.Parallel()
	got, err := through("postgres://tide%20wire@/app?host=/run/pg&port=5433", "10.0.0.1:7000")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := pgx.ParseConfig(got)
	if err != nil || cfg.Host != "10.0.0.1" || cfg.Port != 7000 || cfg.User != "tide wire" || cfg.Database != "app" || cfg.TLSConfig != nil {
		t.Errorf("%s: %+v, %v", got, cfg, err)
	}
}

// TestOutput: the line that says where a node listens is found, however it arrives.
func TestOutput(t *testing.T) {
	t.Parallel()
	const text = "starting\nlistening on 10.0.0.1:8080\nlistening on nothing\n"
	for size := 1; size <= len(text); size++ {
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		o := &output{log: log, listening: make(chan string, 1)}
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			o.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		select {
		case address := <-o.listening:
			if address != "10.0.0.1:8080" {
				t.Errorf("in pieces of %d: %q", size, address)
			}
		default:
			t.Errorf("in pieces of %d: not found", size)
		}
		kept, err := os.ReadFile(log.Name())
		if err != nil || string(kept) != text {
			t.Errorf("in pieces of %d, the log has %q, %v", size, kept, err)
		}
		log.Close()
	}
}

// TestPick: a client goes to its own node, to another one while that is dead, and nowhere if all are.
func TestPick(t *testing.T) {
	t.Parallel()
	l := &load{guests: make(map[*guest]bool)}
	for i := range 3 {
		l.nodes = append(l.nodes, &node{index: i, life: life{i, 1}, address: string(rune('a' + i))})
	}
	if at, address := l.pick(1); at != (life{1, 1}) || address != "b" {
		t.Errorf("%v at %q", at, address)
	}
	l.nodes[1].address = ""
	for range 20 {
		if at, address := l.pick(1); at.node == 1 || address == "" {
			t.Errorf("%v at %q", at, address)
		}
	}
	aborted := 0
	var leave func()
	leave = l.visit(1, life{0, 1}, func() { aborted++; leave() })
	l.visit(2, life{0, 1}, func() { t.Error("a client of another node is called back") })
	l.visit(1, life{1, 1}, func() { t.Error("a client at its own node is called back") })
	if l.recall(1); aborted != 1 {
		t.Errorf("%d connections were aborted", aborted)
	}
	if l.recall(1); aborted != 1 {
		t.Error("a connection that has ended is aborted")
	}
	l.nodes[0].address, l.nodes[2].address = "", ""
	if _, address := l.pick(1); address != "" {
		t.Errorf("%q", address)
	}
}
