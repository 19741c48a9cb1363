package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// memory is a store that commits when the test allows it.
type memory struct {
	mu        sync.Mutex
	submitted int
	stored    []string
	hold      chan struct{} // nil: commit at once; otherwise when closed
	enter     chan struct{} // nil: accept at once; otherwise when closed
	fail      error
}

type memorySource struct {
	store    *memory
	onCommit func(uint64)
	count    uint64
	pending  sync.WaitGroup
}

func (m *memory) source(onCommit func(uint64)) engine.Source {
	return &memorySource{store: m, onCommit: onCommit}
}

func (s *memorySource) Submit(_ context.Context, payloads [][]byte) error {
	if s.store.enter != nil {
		<-s.store.enter
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.store.fail != nil && len(payloads) > 0 {
		return s.store.fail
	}
	var texts []string
	for _, p := range payloads {
		texts = append(texts, string(p))
	}
	s.count += uint64(len(payloads))
	s.store.submitted += len(payloads)
	count, hold := s.count, s.store.hold
	s.pending.Go(func() {
		if hold != nil {
			<-hold
		}
		s.store.mu.Lock()
		s.store.stored = append(s.store.stored, texts...)
		s.store.mu.Unlock()
		if s.onCommit != nil && len(texts) > 0 {
			s.onCommit(count)
		}
	})
	return nil
}

func (s *memorySource) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.pending.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *memory) content() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.stored))
}

// waits reports whether a message waits for its commit.
func (m *memory) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.submitted > len(m.stored)
}

// serveIngest serves a store of ingest alone.
func serveIngest(t *testing.T, store *memory) (*gateway.Server, string) {
	return serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}, DrainTimeout: 2 * time.Second})
}

// TestIngest_AfterTheCommit: an acknowledgement, or the Close frame without acknowledgements, comes after the commit, and not before it.
func TestIngest_AfterTheCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, query := range []string{"?ack=1", ""} {
			store := &memory{hold: make(chan struct{})}
			let := opener(store.hold)
			defer let()
			_, addr := serveIngest(t, store)
			w := &wire{socket: dial(t, "ws://"+addr+"/ws/ingest"+query), t: t}
			send(t, w.socket, "a", "b", "c")
			if query == "" {
				w.StartClose(websocket.StatusNormal, "")
			}
			w.silent(time.Second)
			let()
			if query != "" {
				w.until("3") // the last count
				w.StartClose(websocket.StatusNormal, "")
			}
			w.SetReadDeadline(time.Time{})
			if messages, err := w.socket.Read(); len(messages) > 0 || !isClose(err, websocket.StatusNormal) {
				t.Fatalf("after the commit: %d messages, %v, want the Close frame", len(messages), err)
			}
			if got := store.content(); !slices.Equal(got, []string{"a", "b", "c"}) {
				t.Errorf("stored %q", got)
			}
		}
	})
}

// TestIngest_BareEndStoresWholeMessages: a connection that ends in the middle of a message has stored those before it.
func TestIngest_BareEndStoresWholeMessages(t *testing.T) {
	t.Parallel()
	store := &memory{}
	_, addr := serveIngest(t, store)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "GET /ws/ingest HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	var frames []byte
	for _, text := range []string{"one", "two", "cut in the middle"} {
		frames = websocket.AppendMaskedFrame(frames, websocket.OpText, [4]byte{1, 2, 3, 4}, []byte(text))
	}
	conn.Write(frames[:len(frames)-5])
	conn.(*net.TCPConn).CloseWrite() // a Close would reset the connection if the answer has arrived, and discard what the server has not read
	defer conn.Close()
	waitMetric(t, addr, "tidewire_connections_opened_total 1")
	waitMetric(t, addr, "tidewire_connections 0")
	if got := store.content(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("stored %q, want the two whole messages", got)
	}
}

func TestIngest_StoreFailureClosesWith1011(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: (&memory{fail: errors.New("table is gone")}).source}, Only: gateway.Ingest})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, "a")
	if _, err := endOf(c); !isClose(err, websocket.StatusInternalError) || strings.Contains(err.Error(), "table") {
		t.Errorf("got %v, want code 1011 and nothing internal", err)
	}
}

// TestShutdown_GivesUpWhenTimeIsOver: a stop does not wait forever for a store that never answers, on any endpoint.
func TestShutdown_GivesUpWhenTimeIsOver(t *testing.T) {
	for path, requests := range map[string][]string{
		"/ws/ingest?ack=1": {"a"},
		"/ws":              {`{"type":"publish","id":1,"stream":"orders","payload":"x"}`, `{"type":"commit","id":2,"stream":"orders","group":"g","position":1}`},
		"/ws/chat":         {`{"type":"chat","text":"x","id":2}`},
	} {
		t.Run(path, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store, streams, rooms := &memory{hold: make(chan struct{})}, newFakeStreams(t, "orders"), newMemoryStore(t)
				server, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source, Streams: streams, Rooms: rooms}, Chat: gateway.ChatConfig{StoredRooms: []string{"*"}}})
				streams.hold(true)
				rooms.hold(true)
				send(t, dial(t, "ws://"+addr+path), requests...)
				testkit.Eventually(t, "the store has it", func() bool { return store.waits() || streams.waits() || rooms.waits() })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Shutdown: %v, want the context's error", err)
				}
				streams.hold(false) // answers nobody
				rooms.hold(false)
				close(store.hold)
			})
		})
	}
}

// TestIngest_StopWhileTheStoreIsSlow: the time that a peer has to answer the Close frame does not run while the store keeps the server from
// reading what it had sent.
func TestIngest_StopWhileTheStoreIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &memory{enter: make(chan struct{})}
		server, addr := serveIngest(t, store)
		c := dial(t, "ws://"+addr+"/ws/ingest")
		const sent = 50
		for range sent { // more than the server reads at a time
			c.Queue(websocket.OpText, bytes.Repeat([]byte("x"), 10_000))
			c.Flush()
		}
		time.Sleep(time.Second)
		stopped := shutdown(t, server)
		if got := closeOf(t, c); got != websocket.StatusGoingAway {
			t.Fatalf("closed with %d, want code 1001", got)
		}
		c.StartClose(websocket.StatusGoingAway, "")
		time.Sleep(3 * time.Second) // longer than the peer has
		close(store.enter)
		stopped()
		if n := len(store.content()); n != sent {
			t.Errorf("%d messages stored, want the %d that were sent before the Close frame was answered", n, sent)
		}
	})
}
