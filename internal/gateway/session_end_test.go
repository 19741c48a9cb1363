package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// heldEvents answers queries when the test allows it.
type heldEvents struct {
	fakeEvents
	asked, let chan struct{}

	running, most atomic.Int64 // queries at a time
}

func (h *heldEvents) Query(ctx context.Context, store string, q engine.EventQuery, r engine.EventRange) ([]engine.Event, error) {
	h.most.Store(max(h.most.Load(), h.running.Add(1)))
	defer h.running.Add(-1)
	h.asked <- struct{}{}
	<-h.let
	return h.fakeEvents.Query(ctx, store, q, r)
}

// holdEvents serves events with one event of 200 KiB.
func holdEvents(t *testing.T) (*heldEvents, *gateway.Server, string) {
	data := []byte(`"` + strings.Repeat("x", 200<<10) + `"`)
	events := &heldEvents{
		fakeEvents: fakeEvents{changed: make(chan struct{}), events: []engine.Event{{Position: 1, Type: "T", Data: data, JSON: true}}},
		asked:      make(chan struct{}), let: make(chan struct{}),
	}
	server, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{}).source, Events: events}})
	return events, server, addr
}

// TestSession_ManyLargeAnswers sends more requests than may run at a time:
// nothing is read until a slot is free, including pongs, and the answers that
// hold the slots do not wait for pongs.
func TestSession_ManyLargeAnswers(t *testing.T) {
	t.Parallel()
	const atATime, more = 64, 3
	events, _, addr := holdEvents(t)
	c := connect(t, addr)
	for range atATime + more {
		send(t, c.Conn, `{"type":"query","id":1}`)
	}
	<-events.asked
	<-events.asked
	go func() { // each waits for the answer to an earlier one
		for range atATime + more - 2 {
			<-events.asked
		}
	}()
	close(events.let)
	for got := 0; got < atATime+more; {
		c.SetReadDeadline(time.Now().Add(20 * time.Second)) // less than the lane's patience
		messages, err := read(c)
		if err != nil {
			t.Fatalf("after %d answers: %v", got, err)
		}
		got += len(messages)
	}
	if most := events.most.Load(); most > 2 {
		t.Errorf("%d queries of a connection were answered at a time, want at most 2", most)
	}
}

// TestSession_LargeAnswersAtTheEnd: the server stops while more answer bytes
// are pending than may be unacknowledged. Nothing is read any more, including
// pongs, and the answers are still sent.
func TestSession_LargeAnswersAtTheEnd(t *testing.T) {
	t.Parallel()
	const answers = 2
	events, server, addr := holdEvents(t)
	c := connect(t, addr)
	for range answers {
		send(t, c.Conn, `{"type":"query","id":1}`)
		<-events.asked
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // less than the lane's patience
	defer cancel()
	var stopping sync.WaitGroup
	stopping.Go(func() {
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	for status := 0; status != http.StatusServiceUnavailable; time.Sleep(time.Millisecond) { // until the server has begun to stop
		r, err := http.Get("http://" + addr + "/v1/streams")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		status = r.StatusCode
	}
	close(events.let)
	got := 0
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		messages, err := read(c)
		got += len(messages)
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		if got != answers || !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
			t.Errorf("%d of %d answers, and then %v", got, answers, err)
		}
		c.Close(websocket.StatusGoingAway, "")
		break
	}
	stopping.Wait()
}

// TestSession_QueriesWithoutClient: a client disconnects while its queries wait. They
// are not started, since nobody receives the answers.
func TestSession_QueriesWithoutClient(t *testing.T) {
	t.Parallel()
	const waiting = 10
	events, _, addr := holdEvents(t)
	c := connect(t, addr)
	send(t, c.Conn, `{"type":"join","room":"r"}`)
	for range 2 + waiting {
		send(t, c.Conn, `{"type":"query","id":1}`)
	}
	<-events.asked
	<-events.asked
	awaitMetric(t, addr, "tidewire_chat_rooms 1")
	c.Abort()
	awaitMetric(t, addr, "tidewire_chat_rooms 0") // the server has noticed the disconnect
	close(events.let)
	for {
		select {
		case <-events.asked:
			t.Error("a query was begun for a client that has gone")
		case <-time.After(time.Millisecond):
		}
		if metric(t, addr, "tidewire_connections 0") {
			return
		}
	}
}

// metric reports whether a line is at /metrics.
func metric(t *testing.T, addr, line string) bool {
	t.Helper()
	r, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "\n"+line+"\n")
}

func awaitMetric(t *testing.T, addr, line string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !metric(t, addr, line); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q is not at /metrics within a minute", line)
		}
	}
}
