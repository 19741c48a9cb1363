package bench

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/websocket"
)

// LanesConfig describes the load of Lanes: requests on a connection that the server floods.
type LanesConfig struct {
	// URL is where the requests go.
	URL string
	// TLS is for wss URLs. Defaults to what the system trusts.
	TLS *tls.Config
	// FloodURL is where a second connection receives the flood. Defaults to none.
	FloodURL string
	// Every is the time from one request to the next (open loop).
	Every time.Duration
	// Requests is the number of requests.
	Requests int
	// DummySize is the size of the messages that the server pushes, in bytes.
	DummySize int
	// Chunks sends hello: this client reassembles chunks.
	Chunks bool
	// Patience is the maximum time to wait for the last answers. Defaults to 10 s.
	Patience time.Duration
	// Gauge lets other goroutines ask how far the load is. Defaults to none.
	Gauge *Progress
}

// LanesResult is the result of Lanes.
type LanesResult struct {
	Sent, Answered int
	Elapsed        time.Duration // from the first due time to the last answer
	DummyBytes     int64
	Dummies        int
	// Broken counts dummies that differ from what the server should push, echoes
	// that differ from what was sent, and chunks out of order.
	Broken int
	// Reordered counts echoes that came after the echo of a later request.
	Reordered int
	// Unsent counts requests that the kernel had not accepted when the last one
	// was due.
	Unsent int
	// Latency runs from the time at which a request was due to its answer.
	Latency *Histogram
	// Late is how much later than due requests were given to the kernel, except
	// those that the server delayed by not reading.
	Late *Histogram
}

// lanesRead is the size of a read in bytes, as in most libraries. With larger
// reads a client is so much faster that a server cannot flood it.
const lanesRead = 4 << 10

// Lanes sends requests at fixed times and matches the echoes, while the server
// floods the connection. One goroutine does everything. It answers pings at
// once, as every client does.
func Lanes(ctx context.Context, cfg LanesConfig) (LanesResult, error) {
	if cfg.Patience == 0 {
		cfg.Patience = 10 * time.Second
	}
	poll, err := newPoller()
	if err != nil {
		return LanesResult{}, err
	}
	defer poll.close()
	r := &lanesRun{cfg: cfg, poll: poll, byFD: make(map[int]*lanesConn), in: make([]byte, lanesRead), waiting: make(map[string]int)}
	r.latency, r.late, r.newest = newRecorder(), newRecorder(), -1
	defer r.close()
	if r.requests, err = r.dial(ctx, cfg.URL, cfg.Chunks); err != nil {
		return LanesResult{}, err
	}
	if cfg.FloodURL != "" {
		if _, err := r.dial(ctx, cfg.FloodURL, false); err != nil {
			return LanesResult{}, err
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cfg.Gauge.begin()
	err = r.run(ctx)
	cfg.Gauge.end(r.counters())
	r.result.Latency, r.result.Late = r.latency.all, r.late.all
	return r.result, err
}

// lanesRun is the state of Lanes, used by one goroutine.
type lanesRun struct {
	cfg      LanesConfig
	poll     *poller
	byFD     map[int]*lanesConn
	requests *lanesConn
	in       []byte
	start    time.Time
	waiting  map[string]int // number of each request without an answer
	newest   int            // the latest request that is answered
	queued   int            // requests that the kernel may not have accepted
	over     bool           // the last request is due
	result   LanesResult
	latency  recorder
	late     recorder
}

// lanesConn is one connection, with the message that is arriving on it.
type lanesConn struct {
	rawSocket
	out     []byte // not accepted by the kernel yet
	writing bool   // the poller reports writability
	chunked bool   // binary messages are chunks

	header  []byte // the part of a header that has arrived
	frame   websocket.Header
	left    int64  // bytes of the frame's payload to come
	control []byte // payload of a control frame, as it arrives

	whole   lanesMessage  // a message that is not chunked: its fragments, between control frames
	chunks  lanesMessage  // the chunks, between all other frames
	into    *lanesMessage // to which of the two the frame belongs
	seq     uint32        // of the next chunk
	chunk   [websocket.ChunkHeader]byte
	arrived int // bytes of chunk
}

// lanesMessage is a message while it arrives. It is assembled in memory and
// checked to be UTF-8, as every library does for an application: a client that
// only counted bytes would be too fast to be flooded.
type lanesMessage struct {
	data  []byte
	wrong bool
}

func (r *lanesRun) dial(ctx context.Context, url string, chunks bool) (*lanesConn, error) {
	socket, leftover, err := dialRaw(ctx, url, r.cfg.TLS)
	if err != nil {
		return nil, err
	}
	c := &lanesConn{rawSocket: socket}
	r.byFD[c.fd] = c
	if err := r.poll.add(c.fd); err != nil {
		return nil, err
	}
	if chunks {
		c.out = appendText(c.out, `{"type":"hello","chunks":true}`)
		if err := r.flush(c); err != nil {
			return nil, err
		}
		c.chunked = true
	}
	return c, r.walk(c, leftover)
}

func (r *lanesRun) close() {
	for _, c := range r.byFD {
		c.close()
	}
}

// run sends each request when it is due, even if earlier ones are not answered.
func (r *lanesRun) run(ctx context.Context) error {
	r.start = time.Now()
	end := time.Duration(r.cfg.Requests)*r.cfg.Every + r.cfg.Patience
	for r.result.Answered < r.cfg.Requests {
		now := time.Since(r.start)
		if err := r.send(now); err != nil {
			return err
		}
		if ctx.Err() != nil || now > end {
			return ctx.Err()
		}
		if !r.over && now > r.due(r.cfg.Requests-1)+scheduleGrace {
			r.over, r.result.Unsent = true, r.queued
		}
		if r.cfg.Gauge.wanted() {
			r.cfg.Gauge.tell(r.counters())
		}
		pause := 100 * time.Millisecond
		if r.result.Sent < r.cfg.Requests {
			pause = max(0, r.due(r.result.Sent)-time.Since(r.start))
		}
		var failed error
		err := r.poll.wait(pause, func(ev event) {
			c := r.byFD[ev.fd]
			if failed == nil && ev.readable {
				failed = r.receive(c)
			}
			if failed == nil && ev.writable {
				failed = r.flush(c)
			}
			if failed == nil {
				failed = r.send(time.Since(r.start)) // a read may take a millisecond
			}
		})
		if err = errors.Join(err, failed); err != nil {
			return fmt.Errorf("after %d of %d answers: %w", r.result.Answered, r.cfg.Requests, err)
		}
	}
	return nil
}

// counters returns how far the load is. Messages that the server pushes count as deliveries.
func (r *lanesRun) counters() Counters {
	return Counters{
		Phase: PhaseMeasured, Messages: int64(r.result.Answered), Deliveries: int64(r.result.Dummies),
		Errors: int64(r.result.Broken), Missing: int64(r.result.Sent - r.result.Answered),
		Offered: 1 / r.cfg.Every.Seconds(), Latency: r.latency.take(), Late: r.late.take(),
	}
}

func (r *lanesRun) due(n int) time.Duration { return time.Duration(n) * r.cfg.Every }

// send sends the requests that are due. Each request is a UUID.
func (r *lanesRun) send(now time.Duration) error {
	heldUp := len(r.requests.out) > 0
	for r.result.Sent < r.cfg.Requests && r.due(r.result.Sent) <= now {
		id := newUUID()
		if !heldUp {
			r.late.record(now - r.due(r.result.Sent))
		}
		r.waiting[id] = r.result.Sent
		r.result.Sent++
		r.queued++
		r.requests.out = appendText(r.requests.out, "%s", id)
	}
	err := r.flush(r.requests)
	if len(r.requests.out) == 0 {
		r.queued = 0
	}
	return err
}

const uuidSize = 36 // characters

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (r *lanesRun) flush(c *lanesConn) error {
	if len(c.out) > 0 {
		n, err := c.write(c.out)
		if err != nil && err != unix.EAGAIN && err != unix.EINTR {
			return err
		}
		c.out = c.out[:copy(c.out, c.out[max(n, 0):])]
	}
	if want := len(c.out) > 0; want != c.writing {
		c.writing = want
		return r.poll.wantWrite(c.fd, want)
	}
	return nil
}

func (r *lanesRun) receive(c *lanesConn) error {
	n, err := c.read(r.in)
	if c.buffered() {
		r.poll.unread.again(c.fd)
	}
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return err
	case n == 0:
		return errors.New("the server closed the connection")
	}
	return r.walk(c, r.in[:n])
}
