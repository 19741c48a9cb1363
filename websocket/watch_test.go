package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failure reads until the connection fails, and closes it.
func failure(server *Conn) error {
	_, err := readAll(server)
	server.Close(StatusNormal, "")
	return err
}

func wantOverdue(t *testing.T, err error) {
	t.Helper()
	broken, ok := errors.AsType[*ProtocolError](err)
	if !ok || broken.Code != StatusPolicyViolation || !strings.Contains(broken.Reason, "took longer than") {
		t.Errorf("got %v, want an overdue message", err)
	}
}

// TestMessageTimeout: for every missing part of a message, and with other frames
// arriving meanwhile, the connection ends and the peer receives the reason.
func TestMessageTimeout(t *testing.T) {
	t.Parallel()
	whole := frame(true, OpBinary, strings.Repeat("x", 200))
	for name, test := range map[string]struct {
		first []byte
		again []byte // sent every few milliseconds
	}{
		"part of a header":           {first: whole[:1]},
		"part of a payload":          {first: whole[:100]},
		"payload byte by byte":       {first: AppendHeader(nil, Header{Fin: true, Op: OpBinary, Masked: true, Length: 1 << 20}), again: []byte("x")},
		"the first fragment":         {first: frame(false, OpText, "half")},
		"empty fragments":            {first: frame(false, OpText, ""), again: frame(false, OpContinuation, "")},
		"pings between fragments":    {first: frame(false, OpText, "half"), again: frame(true, OpPing, "")},
		"part of a ping":             {first: frame(true, OpPing, "ping")[:7]},
		"messages, then part of one": {first: join(whole, whole, whole[:50])},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, socket := rawPair(t, Config{MessageTimeout: 50 * time.Millisecond})
			failed := make(chan error, 1)
			go func() { failed <- failure(server) }()
			if _, err := socket.Write(test.first); err != nil {
				t.Fatal(err)
			}
			stop := make(chan struct{})
			go func() {
				for test.again != nil {
					select {
					case <-stop:
						return
					case <-time.After(2 * time.Millisecond):
						socket.Write(test.again) // fails in the end
					}
				}
			}()
			got, err := io.ReadAll(socket)
			close(stop)
			if err != nil || !bytes.Contains(got, []byte("\x03\xf0a message took longer than 50ms and")) {
				t.Errorf("peer got %q, %v", got, err)
			}
			socket.Close()
			wantOverdue(t, <-failed)
		})
	}
}

// TestMessageTimeout_deadline: the caller's deadline still works, also inside a
// message, and time in which nobody reads does not count.
func TestMessageTimeout_deadline(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{MessageTimeout: time.Hour})
	message := frame(true, OpText, "slowly")
	if _, err := socket.Write(message[:8]); err != nil {
		t.Fatal(err)
	}
	server.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := server.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	server.watch.since = server.watch.since.Add(-2 * time.Hour) // as if so much time had passed
	server.arm(time.Now().Add(-time.Hour))
	if _, err := socket.Write(message[8:]); err != nil {
		t.Fatal(err)
	}
	server.SetReadDeadline(time.Time{})
	if msgs, err := server.Read(); err != nil || len(msgs) != 1 || string(msgs[0].Payload) != "slowly" {
		t.Fatalf("got %d messages, %v", len(msgs), err)
	}
}

// pipeTo returns a server's connection that is no socket, which synctest can wait for, and its client's end.
func pipeTo(t *testing.T) (*Conn, net.Conn) {
	ours, socket := net.Pipe()
	server := newConn(ours, Config{}.withDefaults(), false, nil)
	t.Cleanup(func() { socket.Close(); server.Abort() })
	return server, socket
}

// TestMessageTimeout_rate: the minimum rate, in virtual time, on a connection
// that is not a plain socket.
func TestMessageTimeout_rate(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for _, test := range []struct {
		piece int // a second
		want  time.Duration
	}{
		{1, 30 * time.Second},
		{leastRate / 2, 60 * time.Second},
		{2 * leastRate, 0},
	} {
		t.Run(fmt.Sprint(test.piece), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, socket := pipeTo(t)
				done := make(chan error, 1)
				go func() {
					defer socket.Close()
					message := frame(true, OpBinary, string(make([]byte, size)))
					for len(message) > 0 {
						n := min(len(message), test.piece)
						if _, err := socket.Write(message[:n]); err != nil {
							break
						}
						message = message[n:]
						time.Sleep(time.Second)
					}
					time.Sleep(time.Hour) // the end of a message removes the limit
					socket.Write(frame(true, OpText, "after a pause"))
					done <- nil
				}()
				go io.Copy(io.Discard, socket)
				start := time.Now()
				msgs, err := server.Read()
				took := time.Since(start)
				if test.want == 0 {
					if err != nil || len(msgs) != 1 || len(msgs[0].Payload) != size {
						t.Errorf("%d messages, %v", len(msgs), err)
					}
					if msgs, err := server.Read(); err != nil || len(msgs) != 1 {
						t.Errorf("after a pause: %d messages, %v", len(msgs), err)
					}
				} else if wantOverdue(t, err); took < test.want || took > test.want+3*time.Second {
					t.Errorf("failed after %v, want %v", took, test.want)
				}
				server.Abort()
				<-done
			})
		})
	}
}

// TestDecoder_emptyFragments: a million empty fragments are not accepted.
func TestDecoder_emptyFragments(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{})
	go func() {
		socket.Write(frame(false, OpText, "")) // fails in the end
		some := bytes.Repeat(frame(false, OpContinuation, ""), 1000)
		for range 1000 {
			socket.Write(some)
		}
	}()
	if _, err := server.Read(); err != errFragments {
		t.Errorf("got %v", err)
	}
	server.Abort()
}
