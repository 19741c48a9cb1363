package websocket

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// packedPair returns both ends of a connection that may send everything compressed.
func packedPair(t testing.TB, serverCfg, clientCfg Config) (server, client *Conn) {
	t.Helper()
	serverCfg.Compression = cmp.Or(serverCfg.Compression, &Compression{Threshold: 1})
	clientCfg.Compression = cmp.Or(clientCfg.Compression, &Compression{Threshold: 1})
	server, client = pair(t, serverCfg, clientCfg)
	if server.TakesCompressed() || client.TakesCompressed() {
		t.Error("compression before it is allowed")
	}
	server.AllowCompression()
	client.AllowCompression()
	if !server.TakesCompressed() || !client.TakesCompressed() {
		t.Fatal("compression was not negotiated")
	}
	return server, client
}

// rawPacked is rawPair with an agreement on compression, with a window of so many bits.
func rawPacked(t testing.TB, cfg Config, window int) (*Conn, socketOf) {
	t.Helper()
	server, socket := rawPair(t, cfg)
	server.agree(window)
	return server, socket
}

// readFrame reads a frame that a server sent.
func readFrame(t testing.TB, r io.Reader) (Header, string) {
	t.Helper()
	var b []byte
	for {
		h, n, err := ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		more := 1
		if n > 0 {
			more = n + int(h.Length) - len(b)
		}
		if more == 0 {
			return h, string(b[n:])
		}
		b = append(b, make([]byte, more)...)
		if _, err := io.ReadFull(r, b[len(b)-more:]); err != nil {
			t.Fatal(err)
		}
	}
}

// readToEnd reads in a goroutine until the peer closes, and then closes too.
func readToEnd(c *Conn) (wait func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = readAll(c)
		_ = c.Close(StatusNormal, "")
	})
	return wg.Wait
}

var repetitive = strings.Repeat(`{"type":"chat","room":"lobby","text":"grüße"}`, 20)

// TestCompression_frames looks at what a server sends: compressed messages have RSV1, and short ones, those that do not
// shrink and control frames are as they are without compression.
func TestCompression_frames(t *testing.T) {
	t.Parallel()
	z := &Compression{}
	for _, window := range []int{9, 15} {
		server, socket := rawPacked(t, Config{Compression: z}, window)
		sent := func(op Opcode, payload string, packed bool) {
			t.Helper()
			send(t, server, op, payload)
			h, got := readFrame(t, socket)
			if h.Op != op || !h.Fin || (h.RSV == rsv1) != packed || h.RSV&^rsv1 != 0 {
				t.Errorf("%v of %d bytes: header %+v", op, len(payload), h)
			}
			if packed {
				message, _ := reference(op, []byte(got), 1<<20)
				if len(got) >= len(payload) {
					t.Errorf("%d bytes became %d", len(payload), len(got))
				}
				got = string(message)
			}
			if got != payload {
				t.Errorf("sent %q, got %q", payload, got)
			}
		}
		sent(OpText, repetitive, false)
		server.AllowCompression()
		if server.TakesCompressed() != (window == 15) {
			t.Errorf("a window of %d bits: TakesCompressed is %v", window, server.TakesCompressed())
		}
		sent(OpText, repetitive, true)
		sent(OpBinary, repetitive[:threshold], true)
		sent(OpBinary, repetitive[:threshold-1], false)
		sent(OpBinary, "", false)
		sent(OpBinary, string(pattern(256)), false)
		sent(OpPing, repetitive[:125], false)
		if _, err := socket.Write(frame(true, OpPing, repetitive[:125])); err != nil {
			t.Fatal(err)
		}
		server.Abort()
	}
}

// TestCompression_early: before AllowCompression a server refuses compressed messages, except short ones if it says so. A
// client takes them.
func TestCompression_early(t *testing.T) {
	t.Parallel()
	packed := packedWith(t, 6, repetitive)
	for _, test := range []struct {
		name    string
		early   int
		allowed bool
		want    string
	}{
		{"none", 0, false, "compressed message before authentication"},
		{"large enough", len(repetitive), false, ""},
		{"too small", len(repetitive) - 1, false, "compressed message too big before authentication"},
		{"much too small", 1, false, "compressed message too big before authentication"},
		{"larger than MaxMessage", 1 << 30, false, ""},
		{"allowed", 0, true, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, socket := rawPacked(t, Config{MaxMessage: 3000, Compression: &Compression{Early: test.early}}, 15)
			if test.allowed {
				server.AllowCompression()
			}
			if _, err := socket.Write(join(frame(true, OpText, "plain"), packedFrame(true, OpText, packed), frame(true, OpClose, ""))); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(server)
			if test.want == "" {
				if _, closed := errors.AsType[*CloseError](err); !closed || len(got) != 2 || got[1] != repetitive {
					t.Errorf("got %q, %v", got, err)
				}
				return
			}
			if broken, ok := errors.AsType[*ProtocolError](err); !ok || broken.Code != StatusPolicyViolation || broken.Reason != test.want || len(got) != 1 {
				t.Errorf("got %q, %v", got, err)
			}
			if h, payload := readFrame(t, socket); h.Op != OpClose || payload != "\x03\xf0"+test.want {
				t.Errorf("sent %v %q", h.Op, payload)
			}
		})
	}
	server, client := pair(t, Config{Compression: &Compression{}}, Config{Compression: &Compression{}})
	server.AllowCompression()
	send(t, server, OpText, repetitive)
	if msgs, err := client.Read(); err != nil || len(msgs) != 1 || string(msgs[0].Payload) != repetitive {
		t.Error(msgs, err)
	}
	send(t, client, OpText, repetitive) // not compressed yet
	if msgs, err := server.Read(); err != nil || len(msgs) != 1 || string(msgs[0].Payload) != repetitive || server.dec.packed {
		t.Error(msgs, err)
	}
}

// TestCompression_shared: a frame that is compressed once goes to several connections, on both lanes for frames.
func TestCompression_shared(t *testing.T) {
	t.Parallel()
	z := &Compression{}
	var frames []byte
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint(i), fmt.Sprint(i, repetitive))
		frames = z.AppendFrame(frames, OpText, []byte(want[2*i]))
		frames = z.AppendFrame(frames, OpText, []byte(want[2*i+1]))
	}
	if plain := (*Compression)(nil).AppendFrame(nil, OpText, []byte(repetitive)); !bytes.Equal(plain, AppendFrame(nil, OpText, []byte(repetitive))) {
		t.Error("nil compresses")
	}
	if ping := z.AppendFrame(nil, OpPing, make([]byte, 125)); !bytes.Equal(ping, AppendFrame(nil, OpPing, make([]byte, 125))) {
		t.Error("a ping is compressed")
	}
	if len(frames) > len(repetitive)*50/2 {
		t.Errorf("frames of %d bytes", len(frames))
	}
	for range 3 {
		server, client := packedPair(t, Config{}, Config{})
		wait := readToEnd(server)
		offer(t, server, frames)
		bulk := make(chan error, 1)
		go func() { bulk <- server.WriteBulkFrames(t.Context(), frames) }()
		var got []string
		for len(got) < 2*len(want) {
			msgs, err := client.Read()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range msgs {
				got = append(got, string(m.Payload))
			}
		}
		if err := <-bulk; err != nil {
			t.Error(err)
		}
		if fmt.Sprint(got) != fmt.Sprint(append(want, want...)) {
			t.Error("got other messages")
		}
		client.Close(StatusNormal, "")
		wait()
	}
}

// TestCompression_chunked: the binary messages of a connection with chunks are not compressed, since a client looks for the
// header; text messages are.
func TestCompression_chunked(t *testing.T) {
	t.Parallel()
	server, socket := rawPacked(t, Config{Compression: &Compression{}}, 15)
	server.AllowCompression()
	server.SetChunked()
	send(t, server, OpBinary, repetitive)
	if h, payload := readFrame(t, socket); h.RSV != 0 || payload[ChunkHeader:] != repetitive {
		t.Errorf("header %+v", h)
	}
	send(t, server, OpText, repetitive)
	if h, _ := readFrame(t, socket); h.RSV != rsv1 {
		t.Errorf("header %+v", h)
	}
}

// TestCompression_idle: while it waits for its peer, a connection holds neither messages nor anything to inflate them.
func TestCompression_idle(t *testing.T) {
	t.Parallel()
	server, client := packedPair(t, Config{}, Config{})
	for range 10 {
		send(t, client, OpText, repetitive)
	}
	for got := 0; got < 10; {
		msgs, err := server.Read()
		if err != nil {
			t.Fatal(err)
		}
		got += len(msgs)
	}
	if err := server.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	u := server.dec.unpack
	if u.size() != 0 || cap(u.held) > maxHeld || server.dec.buf != nil && server.raw != nil && server.secure == nil {
		t.Errorf("holds %d bytes, a list of %d", u.size(), cap(u.held))
	}
}

// TestCompression_memory: inflated messages are counted until the next Read, and after an error.
func TestCompression_memory(t *testing.T) {
	t.Parallel()
	const size = 600 << 10
	l := &ledger{t: t}
	server, socket := rawPacked(t, Config{Memory: l, Compression: &Compression{}}, 15)
	server.AllowCompression()
	big := packedFrame(true, OpBinary, packedWith(t, 9, string(make([]byte, size))))
	for _, next := range [][]byte{frame(true, OpText, "small"), packedFrame(true, OpText, packedWith(t, 9, "small")), join(big, frame(true, 3, ""))} {
		if _, err := socket.Write(big); err != nil {
			t.Fatal(err)
		}
		if msgs, err := server.Read(); err != nil || len(msgs) != 1 || len(msgs[0].Payload) != size {
			t.Fatal(len(msgs), err)
		}
		if n := l.assembly.Load(); n < size || n > 2*size {
			t.Errorf("%d bytes counted for a message of %d", n, size)
		}
		if _, err := socket.Write(next); err != nil {
			t.Fatal(err)
		}
		if msgs, err := server.Read(); err != nil || len(msgs) != 1 {
			t.Fatal(len(msgs), err)
		} else if n := l.assembly.Load(); len(msgs[0].Payload) == 5 && n != 0 {
			t.Errorf("%d bytes counted after the next read", n)
		}
	}
	if _, err := server.Read(); err == nil {
		t.Error("a reserved opcode is accepted")
	}
	if n := l.assembly.Load(); n != 0 {
		t.Errorf("%d bytes counted after an error", n)
	}
}

// TestCompression_close: Close drops the messages of a read whose inflated size needs several calls of decode, and finds the peer's
// Close frame after them.
func TestCompression_close(t *testing.T) {
	t.Parallel()
	server, socket := rawPacked(t, Config{Compression: &Compression{}}, 15)
	server.AllowCompression()
	big := packedFrame(true, OpBinary, packedWith(t, 9, string(make([]byte, 200<<10))))
	if _, err := socket.Write(join(bytes.Repeat(big, 20), frame(true, OpClose, "\x03\xe8"))); err != nil {
		t.Fatal(err)
	}
	if msgs, err := server.Read(); err != nil || len(msgs) == 0 {
		t.Fatal(len(msgs), err)
	}
	closed := make(chan error, 1)
	go func() { closed <- server.Close(StatusNormal, "") }()
	if h, _ := readFrame(t, socket); h.Op != OpClose {
		t.Error(h)
	}
	socket.Close()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
