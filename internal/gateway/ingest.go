package gateway

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/websocket"
)

// ingest stores every message unchanged. Before the closing handshake it sends
// only answers to pings, so that a client that never reads causes no problem;
// with ?ack=1 it also sends the count of committed messages.
//
// The peer's Close frame is answered when everything it sent before is
// committed: a closing handshake that completes is an acknowledgement of the
// whole connection.
func (s *Server) ingest(w http.ResponseWriter, r *http.Request) {
	ack, err := parseAck(r.URL.Query().Get("ack"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.accept(w, r, websocket.Config{SkipUTF8Check: true}, func(c *connection) {
		c.identity.begin(false)
		in := &ingestion{server: s, conn: c}
		if ack {
			in.acks = &acks{conn: c}
			in.source = s.cfg.Engine.Ingest(in.acks.committed)
		} else {
			in.source = s.cfg.Engine.Ingest(nil)
		}
		in.run()
	})
}

func parseAck(value string) (bool, error) {
	if value == "" {
		return false, nil
	}
	ack, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("ack: want 1 or 0")
	}
	return ack, nil
}

// ingestion is one connection on /ws/ingest.
type ingestion struct {
	server *Server
	conn   *connection
	source engine.Source
	acks   *acks // nil if not asked for
	work   context.Context

	mu             sync.Mutex // guards the fields below
	stopped, until time.Time  // when the server began to stop, and until when it reads
}

func (in *ingestion) run() {
	work, stop := context.WithCancel(in.server.work)
	defer stop()
	in.work = work
	in.conn.whenEvicted(stop) // what waits for the store is memory
	in.conn.whenStopped(in.stopReading)
	err := in.conn.try(in.read)
	var closed *websocket.CloseError
	var store *storeError
	switch {
	case in.conn.broken.Load():
		in.conn.Close(websocket.StatusInternalError, "")
	case in.conn.evicted.Load(): // evict sends the Close frame
		for err = nil; err == nil; { // gives the buffer back
			_, err = in.conn.Read()
		}
	case errors.As(err, &closed), errors.Is(err, os.ErrDeadlineExceeded):
		in.finish(err)
	case errors.As(err, &store):
		in.server.cfg.Log.Error("connection closed", "peer", in.conn.address, "error", err)
		in.conn.Close(websocket.StatusInternalError, notStored(store))
	default: // no Close frame: received messages are stored, and nobody waits for an answer
		in.conn.Close(websocket.StatusNormal, "")
	}
	if in.acks != nil {
		in.acks.stop()
	}
}

// storeError distinguishes the store's error from the connection's.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// notStored is the reason in the Close frame. A store that was told to give up
// does not know which messages it has stored.
func notStored(err error) string {
	if errors.Is(err, context.Canceled) {
		return "given up: messages may be stored"
	}
	return "message could not be stored"
}

// read submits all messages until reading ends.
func (in *ingestion) read() error {
	var payloads [][]byte
	for {
		messages, err := in.conn.Read()
		payloads = payloads[:0]
		for _, m := range messages {
			payloads = append(payloads, m.Payload)
		}
		began := time.Now()
		if err := in.source.Submit(in.work, payloads); err != nil {
			return &storeError{err}
		}
		in.server.ingested.Add(uint64(len(payloads)))
		in.waited(began)
		if err != nil {
			return err
		}
		in.conn.pace(began, messages)
	}
}

// stopReading ends a connection because the server stops. A peer with
// acknowledgements knows which messages are not stored, so reading stops at
// once. Any other peer first gets a Close frame, and the messages that it sends
// before it answers are stored.
func (in *ingestion) stopReading() {
	if in.acks != nil {
		in.conn.SetReadDeadline(time.Now())
		return
	}
	in.conn.StartClose(websocket.StatusGoingAway, in.conn.goingAway())
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stopped = time.Now()
	in.until = in.stopped.Add(in.server.cfg.DrainTimeout)
	in.conn.SetReadDeadline(in.until)
}

// waited extends the deadline by the time in which the store kept the server from
// reading.
func (in *ingestion) waited(began time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.until.IsZero() {
		return
	}
	if began.Before(in.stopped) {
		began = in.stopped
	}
	in.until = in.until.Add(time.Since(began))
	in.conn.SetReadDeadline(in.until)
}

// finish waits until all messages are committed, tells the peer, and closes. Reading has ended with readErr; a graver reason may come while it waits.
func (in *ingestion) finish(readErr error) {
	if err := in.source.Wait(in.work); err != nil {
		in.conn.Close(websocket.StatusInternalError, notStored(err))
		return
	}
	if in.acks != nil {
		in.acks.finish()
	}
	in.conn.Close(ended(in.conn, readErr))
}

const (
	// ackBacklog is how many unsent bytes a client may have before
	// acknowledgements are skipped, since a later one includes the earlier
	// ones.
	ackBacklog = 4 << 10
	// ackRetry is after how long a skipped acknowledgement is tried again.
	ackRetry = 20 * time.Millisecond
)

// acks sends the count of committed messages, only the newest.
type acks struct {
	conn *connection

	mu           sync.Mutex
	latest, sent uint64
	retry        *time.Timer // nil if none is running
	scratch      [20]byte
}

// committed is called by the store, from any goroutine; it never blocks.
func (a *acks) committed(count uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if count > a.latest {
		a.latest = count
		a.send()
	}
}

// send queues the latest count, or starts the timer that tries again.
func (a *acks) send() {
	if a.latest == a.sent {
		return
	}
	if a.conn.Unsent() > ackBacklog {
		if a.retry == nil {
			a.retry = time.AfterFunc(ackRetry, func() { a.conn.guard(a.again) })
		}
		return
	}
	a.queue()
	a.conn.Flush()
}

// again tries to send a skipped count.
func (a *acks) again() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retry != nil {
		a.retry = nil
		a.send()
	}
}

func (a *acks) queue() {
	a.sent = a.latest
	a.conn.Queue(websocket.OpText, strconv.AppendUint(a.scratch[:0], a.latest, 10))
}

// finish queues the last count if it was not sent; Close sends it.
func (a *acks) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest != a.sent {
		a.queue()
	}
}

// stop ends the timer.
func (a *acks) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.retry != nil {
		a.retry.Stop()
		a.retry = nil
	}
}
