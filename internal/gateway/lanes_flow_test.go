package gateway_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// TestLanes_StopsReading is TestLanes_NeverRead for a client that has read for a
// while, so that more bytes may be in flight to it.
func TestLanes_StopsReading(t *testing.T) {
	t.Parallel()
	for name, hello := range map[string]string{"plain client": `{}`, "chunks": `{"type":"hello","chunks":true}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := serveLanes(t, gateway.LanesConfig{DummyEvery: time.Millisecond, LagTimeout: 5 * time.Second}) // far more than a busy machine keeps a reader waiting
			c := dial(t, "ws://"+addr+"/ws")
			send(t, c, hello)
			for received := 0; received < 8<<20; {
				messages, err := c.Read()
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range messages {
					received += len(m.Payload)
				}
			}
			waitMetric(t, addr, "tidewire_connections 0")
			if err := drained(c); !isClose(err, websocket.StatusPolicyViolation) {
				t.Errorf("ended with %v, want a Close frame with 1008", err)
			}
		})
	}
}

// drained reads to the end and returns the error there.
func drained(c *websocket.Conn) error {
	c.SetReadDeadline(time.Now().Add(patience))
	for {
		if _, err := c.Read(); err != nil {
			return err
		}
	}
}

func isClose(err error, code websocket.StatusCode) bool {
	var closed *websocket.CloseError
	return errors.As(err, &closed) && closed.Code == code
}

// TestLanes_RefusedCreditChangesNothing: after a refused credit message,
// dummies continue under the previous credit.
func TestLanes_RefusedCreditChangesNothing(t *testing.T) {
	t.Parallel()
	addr := serveLanes(t, gateway.LanesConfig{DummySize: 1000, DummyEvery: time.Millisecond, LagTimeout: patience})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"hello","credit":true}`, `{"type":"credit","bytes":0}`)
	dummies, refused := 0, false
	c.SetReadDeadline(time.Now().Add(patience))
	for dummies < 20 {
		messages, err := c.Read()
		if err != nil {
			t.Fatalf("%d dummies, then %v", dummies, err)
		}
		for _, m := range messages {
			if strings.Contains(string(m.Payload), `"invalid_credit"`) {
				refused = true
			} else if refused {
				dummies++
			}
		}
	}
}

// TestLanes_Credit: a client that grants credit gets no more bulk bytes than
// that; answers do not need credit.
func TestLanes_Credit(t *testing.T) {
	t.Parallel()
	const chunk = 16 << 10
	_, addr := serve(t, gateway.Config{Only: gateway.Lanes, Lanes: gateway.LanesConfig{DummySize: 10 * chunk, DummyEvery: 20 * time.Millisecond, Chunk: chunk}})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, `{"type":"hello","chunks":true,"credit":true}`, `{"type":"credit","bytes":16384}`, "ready")
	chunks, answers := 0, 0
	next := func() {
		t.Helper()
		messages, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.Op == websocket.OpBinary {
				chunks++
			} else {
				answers++
			}
		}
	}
	for answers < 1 || chunks < 1 {
		next()
	}
	for granted := 1; granted < 5; granted++ {
		if chunks > granted {
			t.Fatalf("%d chunks for credit of %d", chunks, granted)
		}
		send(t, c, "while it waits")
		for want := answers + 1; answers < want; {
			next()
		}
		send(t, c, `{"type":"credit","bytes":16384}`)
		for chunks < granted+1 {
			next()
		}
	}
}

// TestLanes_LargeMessages: messages of the largest size are echoed, even if the
// client reads late and slowly, so that the kernels are full of echoes.
func TestLanes_LargeMessages(t *testing.T) {
	t.Parallel()
	const size, count = 3 << 20, 20
	_, addr := serve(t, gateway.Config{Only: gateway.Lanes, Lanes: quiet, MaxMessage: size})
	c, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", websocket.Config{MaxMessage: size, MaxUnsent: 2 * count * size})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	body := bytes.Repeat([]byte("x"), size)
	for range count {
		if err := c.Queue(websocket.OpText, body); err != nil {
			t.Fatal(err)
		}
	}
	c.Flush()
	time.Sleep(500 * time.Millisecond)
	c.SetReadDeadline(time.Now().Add(patience))
	for got := 0; got < count; {
		time.Sleep(2 * time.Millisecond)
		messages, err := c.Read()
		if err != nil {
			t.Fatalf("%d echoes, then %v", got, err)
		}
		for _, m := range messages {
			if len(m.Payload) != size {
				t.Errorf("an echo of %d bytes", len(m.Payload))
			}
			got++
		}
	}
}

// TestLanes_BinaryEchoToChunks: to a client with chunks, a binary echo begins
// with a chunk header, like every binary message; a text echo does not.
func TestLanes_BinaryEchoToChunks(t *testing.T) {
	t.Parallel()
	addr := serveLanes(t, quiet)
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, " \n"+`{"type":"hello","chunks":true}`)
	c.Queue(websocket.OpBinary, []byte("\x01\x00\x00\x00 like a header"))
	send(t, c, "text")
	var got []websocket.Message
	for len(got) < 2 {
		messages, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			got = append(got, websocket.Message{Op: m.Op, Payload: bytes.Clone(m.Payload)})
		}
	}
	want := binary.BigEndian.AppendUint64([]byte{1, websocket.ChunkLast, 0, 0}, 0)
	want = append(want, "\x01\x00\x00\x00 like a header"...)
	if got[0].Op != websocket.OpBinary || !bytes.Equal(got[0].Payload, want) || got[1].Op != websocket.OpText || string(got[1].Payload) != "text" {
		t.Errorf("got %v %q and %v %q", got[0].Op, got[0].Payload, got[1].Op, got[1].Payload)
	}
}

// TestLanes_Shutdown ends a flood with the closing handshake.
func TestLanes_Shutdown(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/ws", "/ws?variant=plain"} {
		server, addr := serve(t, gateway.Config{Only: gateway.Lanes, Lanes: gateway.LanesConfig{DummySize: 4 << 20, DummyEvery: time.Millisecond}})
		c, err := websocket.Dial(t.Context(), "ws://"+addr+path, websocket.Config{MaxMessage: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		if _, err := c.Read(); err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- server.Shutdown(t.Context()) }()
		if err := drained(c); !isClose(err, websocket.StatusGoingAway) {
			t.Errorf("%s: ended with %v, want code 1001", path, err)
		}
		c.Close(websocket.StatusGoingAway, "")
		if err := <-stopped; err != nil {
			t.Errorf("%s: %v", path, err)
		}
		resp, err := http.Get("http://" + addr + "/ws")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: a connection after the stop got %d, want 503", path, resp.StatusCode)
		}
	}
}

// TestLanes_Metrics: metrics count while the connection is open, and keep their
// values after its end.
func TestLanes_Metrics(t *testing.T) {
	t.Parallel()
	const size = 100_000
	addr := serveLanes(t, gateway.LanesConfig{DummySize: size, DummyEvery: 5 * time.Millisecond, Chunk: 16 << 10})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, "one", "two", `{"type":"credit","bytes":1}`)
	for dummies, echoes := 0, 0; dummies < 3 || echoes < 3; {
		messages, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if len(m.Payload) == size {
				dummies++
			} else {
				echoes++
			}
		}
	}
	// Messages that the client has read are counted a moment later.
	open := metrics(t, addr)
	for deadline := time.Now().Add(patience); open["tidewire_lanes_dummies_total"] < 3 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
		open = metrics(t, addr)
	}
	if open["tidewire_lanes_echoes_total"] != 2 || open["tidewire_lanes_dummies_total"] < 3 ||
		open["tidewire_lanes_dummy_bytes_total"] < 3*size || // not read at the same moment as the number of dummies
		open["tidewire_bulk_chunks_total"] < 3*7 || open["tidewire_bulk_bytes_total"] < 3*size {
		t.Errorf("while it is open: %v", open)
	}
	c.Abort()
	waitMetric(t, addr, "tidewire_connections 0")
	ended := metrics(t, addr)
	if ended["tidewire_lanes_dummy_bytes_total"] != size*ended["tidewire_lanes_dummies_total"] {
		t.Errorf("%v", ended)
	}
	if len(open) != len(ended) || len(open) != 3+5+2+1 {
		t.Errorf("%d values, and then %d", len(open), len(ended))
	}
	for name, before := range open {
		if after := ended[name]; after < before && name != "tidewire_unsent_bytes" {
			t.Errorf("%s was %v, and is %v", name, before, after)
		}
	}
	if unsent, ok := ended["tidewire_unsent_bytes"]; !ok || unsent != 0 {
		t.Errorf("%v bytes unsent without a connection", unsent)
	}
}

var laneMetric = regexp.MustCompile(`^tidewire_(lane|bulk|unsent)`)

// metrics returns the lane metrics of /metrics.
func metrics(t *testing.T, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	values := make(map[string]float64)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if laneMetric.MatchString(name) {
			if values[name], err = strconv.ParseFloat(value, 64); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
		}
	}
	return values
}

// TestLanes_EchoesLeaveRoom: a client requests more echoes than it reads, so
// that some are always queued. It still gets dummies in between, and is not
// closed as a client that does not read.
func TestLanes_EchoesLeaveRoom(t *testing.T) {
	t.Parallel()
	const size = 1000
	addr := serveLanes(t, gateway.LanesConfig{DummySize: size, DummyEvery: time.Millisecond, LagTimeout: 10 * time.Second})
	c := dial(t, "ws://"+addr+"/ws")
	var asking sync.WaitGroup
	defer asking.Wait()
	defer c.Abort()
	asking.Go(func() {
		for request := bytes.Repeat([]byte("e"), 64<<10); ; {
			if c.Unsent() > 256<<10 {
				time.Sleep(time.Millisecond)
			} else if c.Queue(websocket.OpText, request) != nil || c.Flush() != nil {
				return
			}
		}
	})
	for dummies := 0; dummies < 20; time.Sleep(time.Millisecond) {
		messages, err := c.Read()
		if err != nil {
			t.Fatalf("%d dummies, then %v", dummies, err)
		}
		for _, m := range messages {
			if len(m.Payload) == size {
				dummies++
			}
		}
	}
}
