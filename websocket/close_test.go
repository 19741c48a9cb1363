package websocket

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func wantClose(t *testing.T, err error, code StatusCode, reason string) {
	t.Helper()
	closed, ok := errors.AsType[*CloseError](err)
	if !ok || closed.Code != code || closed.Reason != reason {
		t.Errorf("got %v, want close %d %q", err, code, reason)
	}
}

// TestClose_byPeer: answers to earlier messages are still sent before the Close
// frame.
func TestClose_byPeer(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{}, Config{})
	send(t, client, OpText, "store this")
	var wg sync.WaitGroup
	wg.Go(func() {
		client.StartClose(StatusNormal, "bye")
		if err := client.Queue(OpText, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("queued after the close frame: %v", err)
		}
		got, err := readAll(client)
		if strings.Join(got, " ") != "stored" {
			t.Errorf("client got %q", got)
		}
		wantClose(t, err, StatusGoingAway, "so long")
		if err := client.Close(StatusNormal, ""); err != nil {
			t.Errorf("client: %v", err)
		}
	})
	got, err := readAll(server)
	if len(got) != 1 {
		t.Errorf("server got %q", got)
	}
	wantClose(t, err, StatusNormal, "bye")
	if err := server.Queue(OpText, []byte("stored")); err != nil {
		t.Error(err)
	}
	if err := server.Close(StatusGoingAway, "so long"); err != nil {
		t.Errorf("server: %v", err)
	}
	wg.Wait()
	if err := server.Close(StatusNormal, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if err := server.Queue(OpText, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("queue after close: %v", err)
	}
	if _, err := server.WriteShared(AppendFrame(nil, OpText, nil)); !errors.Is(err, ErrClosed) {
		t.Errorf("shared after close: %v", err)
	}
}

// TestStartClose: everything that the peer sent before its Close frame is still
// read.
func TestStartClose(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{}, Config{})
	server.StartClose(StatusGoingAway, "restart")
	for range 3 {
		send(t, client, OpText, "before I knew")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := readAll(client)
		wantClose(t, err, StatusGoingAway, "restart")
		if err := client.Close(StatusGoingAway, "restart"); err != nil {
			t.Error(err)
		}
	})
	got, err := readAll(server)
	if len(got) != 3 {
		t.Errorf("server got %q", got)
	}
	wantClose(t, err, StatusGoingAway, "restart")
	if err := server.Close(StatusNormal, ""); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestClose_deafPeer: a peer that neither reads nor answers.
func TestClose_deafPeer(t *testing.T) {
	t.Parallel()
	server, _ := rawPair(t, Config{MaxUnsent: 64 << 20, CloseTimeout: 50 * time.Millisecond})
	if err := server.Queue(OpBinary, make([]byte, 32<<20)); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := server.Close(StatusNormal, ""); !errors.Is(err, ErrWriteTimeout) {
		t.Error(err)
	}
	if took := time.Since(start); took > patience/2 {
		t.Errorf("took %v", took)
	}
}

// TestClose_silentPeer: a peer that reads and does not answer.
func TestClose_silentPeer(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{CloseTimeout: 50 * time.Millisecond})
	if err := server.Close(StatusNormal, ""); err == nil {
		t.Error("a handshake of one")
	}
	if got, err := io.ReadAll(socket); err != nil || !bytes.Equal(got, AppendClose(nil, StatusNormal, "")) {
		t.Errorf("peer got %x, %v", got, err)
	}
}

// TestProtocolError_midStream: the peer receives the reason, though it is still
// sending.
func TestProtocolError_midStream(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{})
	var wg sync.WaitGroup
	wg.Go(func() {
		socket.Write(join(frame(true, OpText, "fine"), frame(true, OpBinary, string(make([]byte, 8<<20)))))
	})
	wg.Go(func() {
		got, err := readAll(server)
		if len(got) != 1 {
			t.Errorf("got %q", got)
		}
		if broken, ok := errors.AsType[*ProtocolError](err); !ok || broken.Code != StatusTooBig {
			t.Error(err)
		}
		if closeErr := server.Close(StatusNormal, ""); closeErr != err {
			t.Errorf("close: %v", closeErr)
		}
	})
	got, err := io.ReadAll(socket)
	if want := AppendClose(nil, StatusTooBig, errTooBig.Reason); err != nil || !bytes.Equal(got, want) {
		t.Errorf("peer got %q, %v", got, err)
	}
	socket.Close()
	wg.Wait()
}

// TestClose_peerSendsOn: bytes that a peer sends after its Close frame, such as
// pongs, do not cause a reset, which would lose the answer.
func TestClose_peerSendsOn(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{CloseTimeout: patience})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := readAll(server)
		wantClose(t, err, StatusNormal, "bye")
		if err := server.Close(StatusNormal, "bye"); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	pongs := bytes.Repeat(frame(true, OpPong, "late"), 100_000)
	if _, err := socket.Write(join(frame(true, OpClose, "\x03\xe8bye"), pongs)); err != nil {
		t.Errorf("peer sends on: %v", err)
	}
	if got, err := io.ReadAll(socket); err != nil || !bytes.Equal(got, AppendClose(nil, StatusNormal, "bye")) {
		t.Errorf("peer got %x, %v", got, err)
	}
	socket.Close()
	wg.Wait()
}

// TestClose_peerStays: a peer that never closes its side delays Close only
// briefly.
func TestClose_peerStays(t *testing.T) {
	t.Parallel()
	server, socket := rawPair(t, Config{CloseTimeout: time.Hour})
	if _, err := socket.Write(frame(true, OpClose, "\x03\xe8")); err != nil {
		t.Fatal(err)
	}
	_, err := readAll(server)
	wantClose(t, err, StatusNormal, "")
	if err := server.Close(StatusNormal, ""); err != nil {
		t.Errorf("server: %v", err)
	}
}

// TestClose_flood: little is read from a peer that sends on and on after the
// server's Close frame. It receives that frame nevertheless.
func TestClose_flood(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *Conn){
		"unanswered": func(c *Conn) { c.Close(StatusPolicyViolation, "too much") },
		"answered": func(c *Conn) {
			c.StartClose(StatusPolicyViolation, "too much")
			readAll(c)
			c.Close(StatusPolicyViolation, "too much")
		},
		"evicted": func(c *Conn) { c.Evict(StatusPolicyViolation, "too much") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, socket := rawPair(t, Config{})
			sent := 0
			var wg sync.WaitGroup
			wg.Go(func() {
				data := frame(true, OpClose, "\x03\xf0")
				if name != "answered" {
					data = nil
				}
				for flood := bytes.Repeat(frame(true, OpText, strings.Repeat("x", 1000)), 100); ; data = flood {
					n, err := socket.Write(data)
					if sent += n; err != nil {
						return
					}
				}
			})
			wg.Go(func() { end(server) })
			got, err := io.ReadAll(socket)
			if want := AppendClose(nil, StatusPolicyViolation, "too much"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("peer got %q, %v", got, err)
			}
			wg.Wait()
			if sent > 32<<20 { // the kernels hold less
				t.Errorf("the peer could send %d bytes", sent)
			}
		})
	}
}

func TestAbort(t *testing.T) {
	t.Parallel()
	server, client := pair(t, Config{}, Config{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := server.Read(); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := server.Close(StatusNormal, ""); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	server.Abort()
	server.Abort()
	wg.Wait()
	if _, err := client.Read(); err == nil {
		t.Error("client reads on")
	}
	if err := client.Close(StatusNormal, ""); err == nil {
		t.Error("client closed cleanly")
	}
}

// TestClose_storm calls all methods concurrently, for the race detector.
func TestClose_storm(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		l := &ledger{t: t}
		server, client := pair(t, Config{MaxUnsent: 1 << 16, CloseTimeout: time.Second, Memory: l}, Config{CloseTimeout: time.Second})
		var wg sync.WaitGroup
		shared := AppendFrame(nil, OpText, []byte("to all"))
		for _, c := range []*Conn{server, client} {
			wg.Go(func() {
				readAll(c)
				c.Close(StatusNormal, "")
			})
			for range 3 {
				wg.Go(func() {
					for j := range 300 {
						if c.Queue(OpText, []byte("hello")) != nil || j%7 == 0 && c.Flush() != nil {
							return
						}
						if _, err := server.WriteShared(shared); err != nil {
							return
						}
					}
				})
			}
		}
		switch i % 4 {
		case 0:
			client.Close(StatusNormal, "")
		case 1:
			server.Abort()
		case 2:
			wg.Go(func() { server.Close(StatusNormal, "") })
			client.Close(StatusNormal, "")
		case 3:
			server.StartClose(StatusNormal, "")
			wg.Go(func() { server.Abort() })
		}
		wg.Wait()
		server.Abort()
		client.Abort()
		if n := l.output.Load(); n != 0 {
			t.Errorf("%d bytes at the end", n)
		}
	}
}
