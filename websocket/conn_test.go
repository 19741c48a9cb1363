package websocket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for an expected event: much longer than it
// takes on a busy machine.
const patience = 2 * time.Minute

// pair returns both ends of a connection over a loopback socket.
func pair(t testing.TB, serverCfg, clientCfg Config) (server, client *Conn) {
	t.Helper()
	return tlsPair(t, os.Getenv(overTLS), serverCfg, clientCfg)
}

// rawPair returns a server's connection and the bare socket of its client.
func rawPair(t testing.TB, cfg Config) (*Conn, socketOf) {
	t.Helper()
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, patience)
	handler, conns := upgradeInto(cfg)
	wsURL, config := startServer(t, os.Getenv(overTLS), handler)
	u, err := url.Parse(wsURL)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	socket := socketOf{tcp, tcp.(*net.TCPConn)}
	t.Cleanup(func() { socket.tcp.Close() })
	if err := tcp.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if config != nil {
		config = config.Clone()
		config.ServerName = u.Hostname()
		socket.Conn = tls.Client(tcp, config)
	}
	if leftover, err := ClientHandshake(socket, u); err != nil || len(leftover) > 0 {
		t.Fatal(leftover, err)
	}
	server := <-conns
	t.Cleanup(server.Abort)
	return server, socket
}

// pipePair returns both ends of a connection that is not a socket.
func pipePair(t testing.TB) (server, client *Conn) {
	a, b := net.Pipe()
	cfg := Config{}.withDefaults()
	server, client = newConn(a, cfg, false, nil), newConn(b, cfg, true, nil)
	t.Cleanup(client.Abort)
	t.Cleanup(server.Abort)
	return server, client
}

func send(t testing.TB, c *Conn, op Opcode, payload string) {
	t.Helper()
	if err := errors.Join(c.Queue(op, []byte(payload)), c.Flush()); err != nil {
		t.Fatal(err)
	}
}

// readAll reads to the end.
func readAll(c *Conn) (got []string, err error) {
	for {
		msgs, err := c.Read()
		if err != nil {
			return got, err
		}
		for _, m := range msgs {
			got = append(got, string(m.Payload))
		}
	}
}

// echo answers until the peer has gone, then closes.
func echo(c *Conn) error {
	for {
		msgs, err := c.Read()
		if err != nil {
			return errors.Join(err, c.Close(StatusNormal, ""))
		}
		for _, m := range msgs {
			if err := c.Queue(m.Op, m.Payload); err != nil {
				c.Abort()
				return err
			}
		}
	}
}

func TestEcho_sizes(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(t testing.TB) (*Conn, *Conn){
		"socket": func(t testing.TB) (*Conn, *Conn) { return pair(t, Config{}, Config{}) },
		"small buffers": func(t testing.TB) (*Conn, *Conn) {
			return pair(t, Config{ReadBuffer: 1, MaxUnsent: 1}, Config{ReadBuffer: 100})
		},
		"compressed": func(t testing.TB) (*Conn, *Conn) { return packedPair(t, Config{}, Config{}) },
		"pipe":       pipePair,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := ends(t)
			var wg sync.WaitGroup
			wg.Go(func() { echo(server) })
			defer wg.Wait()
			for _, size := range []int{0, 1, 125, 126, 127, 4096, 65535, 65536, 65537, 1 << 20} {
				payload := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
				send(t, client, OpBinary, string(payload))
				msgs, err := client.Read()
				if err != nil || len(msgs) != 1 || msgs[0].Op != OpBinary || !bytes.Equal(msgs[0].Payload, payload) {
					t.Fatalf("%d bytes: %d messages, %v", size, len(msgs), err)
				}
			}
			if err := client.Close(StatusNormal, "done"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRead_many: the answers to messages of one write arrive in one write.
func TestRead_many(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{}, Config{})
	for i := range 100 {
		if err := client.Queue(OpText, fmt.Append(nil, "message ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Conn{server, client} {
		msgs, err := c.Read()
		if err != nil || len(msgs) != 100 || string(msgs[99].Payload) != "message 99" {
			t.Fatalf("%d messages, %v", len(msgs), err)
		}
		for _, m := range msgs {
			if err := c.Queue(m.Op, m.Payload); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRead_end(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		stream []byte
		want   error
	}{
		{"between messages", frame(true, OpText, "whole"), io.EOF},
		{"inside a frame", join(frame(true, OpText, "whole"), frame(true, OpText, "cut")[:7]), io.ErrUnexpectedEOF},
		{"inside a header", join(frame(true, OpText, "whole"), []byte{0x81}), io.ErrUnexpectedEOF},
		{"inside a message", join(frame(true, OpText, "whole"), frame(false, OpText, "cut")), io.ErrUnexpectedEOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, socket := rawPair(t, Config{})
			if _, err := socket.Write(test.stream); err != nil {
				t.Fatal(err)
			}
			socket.CloseWrite()
			got, err := readAll(server)
			if len(got) != 1 || err != test.want {
				t.Errorf("%q, %v", got, err)
			}
			if _, again := server.Read(); again != err {
				t.Errorf("then %v", again)
			}
			if err := server.Close(StatusNormal, ""); err != test.want {
				t.Errorf("close: %v", err)
			}
		})
	}
}

func TestRead_pingPong(t *testing.T) {
	t.Parallel()
	var pings, pongs []string
	server, client := pair(t, Config{OnPong: func(p []byte) { pongs = append(pongs, string(p)) }},
		Config{OnPing: func(p []byte) { pings = append(pings, string(p)) }})
	for i := range 5 { // some with a payload of their own, some without
		if err := server.Queue(OpPing, bytes.Repeat([]byte{'p'}, i)); err != nil {
			t.Fatal(err)
		}
	}
	send(t, server, OpText, "go on")
	if _, err := client.Read(); err != nil {
		t.Fatal(err)
	}
	send(t, client, OpText, "go on")
	if _, err := server.Read(); err != nil {
		t.Fatal(err)
	}
	want := []string{"", "p", "pp", "ppp", "pppp"}
	if fmt.Sprint(pings) != fmt.Sprint(want) || fmt.Sprint(pongs) != fmt.Sprint(want) {
		t.Errorf("pings %q, pongs %q, want %q", pings, pongs, want)
	}
}

// TestPark checks which buffer a connection keeps while it waits for its peer.
func TestPark(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		stream []byte
		want   int
	}{
		{"nothing", frame(true, OpText, "whole"), 0},
		{"a part of a frame", frame(true, OpBinary, string(make([]byte, 3000)))[:2500], 4 << 10},
		{"a part of a message", frame(false, OpBinary, "part"), 1 << 10},
		{"much of a large frame", frame(true, OpBinary, string(make([]byte, 100000)))[:40000], 64 << 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := decoder{size: 64 << 10, max: 1 << 20}
			d.w = copy(d.space(), test.stream)
			d.decode()
			d.park()
			got := 0
			if d.buf != nil {
				got = len(d.buf.b)
			}
			if got != test.want {
				t.Errorf("keeps %d bytes, want %d", got, test.want)
			}
		})
	}
}

func TestDial_refused(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, err := Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http"), Config{})
	if refused, ok := errors.AsType[*HandshakeError](err); !ok || refused.Status != http.StatusNotFound {
		t.Error(err)
	}
	for _, address := range []string{s.URL, "ws://%"} {
		if _, err := Dial(t.Context(), address, Config{}); err == nil {
			t.Error("dialled", address)
		}
	}
}

// TestDial_canceled dials a server that accepts and does not answer.
func TestDial_canceled(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, "ws://"+l.Addr().String(), Config{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
