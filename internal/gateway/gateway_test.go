package gateway_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/websocket"
)

// patience is how long a test waits for an expected event.
const patience = 2 * time.Minute

// TestMain lets more tests run in parallel than there are processors, because
// most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "4")
	}
	http.DefaultTransport = recordingTransport{http.DefaultTransport.(*http.Transport)}
	pgtest.Main(compared{m})
}

// memory is a store that commits when the test allows it.
type memory struct {
	mu        sync.Mutex
	submitted int
	stored    []string
	hold      chan struct{} // nil: commit at once; otherwise when closed
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

func (s *memorySource) Wait(context.Context) error { s.pending.Wait(); return nil }

func (m *memory) content() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.stored))
}

// serve runs a gateway and returns its address; it is shut down at the end.
func serve(t *testing.T, cfg gateway.Config) (*gateway.Server, string) {
	t.Helper()
	if cfg.Chat.PingInterval == 0 && cfg.Chat.PongTimeout == 0 { // a busy machine may take longer than the defaults
		cfg.Chat.PingInterval, cfg.Chat.PongTimeout = time.Hour, time.Hour
	}
	server := gateway.New(cfg)
	front := httptest.NewServer(server)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		front.Close()
	})
	return server, strings.TrimPrefix(front.URL, "http://")
}

func dial(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	c, err := websocket.Dial(t.Context(), url, websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	return c
}

func send(t *testing.T, c *websocket.Conn, texts ...string) {
	t.Helper()
	for _, text := range texts {
		recorded.sent(c, websocket.OpText, []byte(text))
		if err := c.Queue(websocket.OpText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// counts reads acknowledgements until one reaches want.
func counts(t *testing.T, c *websocket.Conn, want uint64) {
	t.Helper()
	for last := uint64(0); last < want; {
		messages, err := c.Read()
		if err != nil {
			t.Fatalf("after acknowledgement %d: %v", last, err)
		}
		for _, m := range messages {
			n, err := strconv.ParseUint(string(m.Payload), 10, 64)
			if err != nil || n <= last || n > want || m.Op != websocket.OpText {
				t.Fatalf("acknowledgement %q after %d, want up to %d", m.Payload, last, want)
			}
			last = n
		}
	}
}

func TestIngest_AcknowledgesWhatIsCommitted(t *testing.T) {
	t.Parallel()
	store := &memory{hold: make(chan struct{})}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}})
	c := dial(t, "ws://"+addr+"/ws/ingest?ack=1")
	send(t, c, "a", "b", "c")
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if messages, err := c.Read(); err == nil {
		t.Fatalf("acknowledged %q before the commit", messages[0].Payload)
	}
	c.SetReadDeadline(time.Time{})
	close(store.hold)
	counts(t, c, 3)
	if err := c.Close(websocket.StatusNormal, ""); err != nil {
		t.Error(err)
	}
}

func TestIngest_SilentUntilCloseAndCloseMeansStored(t *testing.T) {
	t.Parallel()
	store := &memory{hold: make(chan struct{})}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}, Only: gateway.Ingest})
	c := dial(t, "ws://"+addr+"/ws")
	send(t, c, "a", "b")
	c.StartClose(websocket.StatusNormal, "")
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if messages, err := c.Read(); len(messages) > 0 || !strings.Contains(fmt.Sprint(err), "timeout") {
		t.Fatalf("before the commit: %d messages, %v, want silence", len(messages), err)
	}
	c.SetReadDeadline(time.Time{})
	close(store.hold)
	var closed *websocket.CloseError
	if messages, err := c.Read(); len(messages) > 0 || !errors.As(err, &closed) || closed.Code != websocket.StatusNormal {
		t.Fatalf("after the commit: %d messages, %v, want the Close frame", len(messages), err)
	}
	if got := store.content(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("stored %q", got)
	}
}

func TestIngest_BareEndStoresWholeMessages(t *testing.T) {
	t.Parallel()
	store := &memory{}
	server, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /ws/ingest HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	var frames []byte
	for _, text := range []string{"one", "two", "cut in the middle"} {
		frames = websocket.AppendMaskedFrame(frames, websocket.OpText, [4]byte{1, 2, 3, 4}, []byte(text))
	}
	if _, err := conn.Write(frames[:len(frames)-5]); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	for deadline := time.Now().Add(patience); len(store.content()) < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	_ = server
	if got := store.content(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("stored %q, want the two whole messages", got)
	}
}

func TestIngest_StoreFailureClosesWith1011(t *testing.T) {
	t.Parallel()
	store := &memory{fail: errors.New("table is gone")}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}})
	c := dial(t, "ws://"+addr+"/ws/ingest")
	send(t, c, "a")
	var closed *websocket.CloseError
	if _, err := c.Read(); !errors.As(err, &closed) || closed.Code != websocket.StatusInternalError || strings.Contains(closed.Reason, "table") {
		t.Errorf("got %v, want code 1011 and nothing internal", err)
	}
}

func TestIngest_ClientThatNeverReadsAcksGetsTheLast(t *testing.T) {
	t.Parallel()
	store := &memory{}
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}})
	c := dial(t, "ws://"+addr+"/ws/ingest?ack=1")
	const total = 20_000
	for range total {
		if err := c.Queue(websocket.OpText, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil { // many small reads, so many acknowledgements
			t.Fatal(err)
		}
	}
	counts(t, c, total)
}

func TestShutdown_StoresAndClosesWith1001(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "?ack=1"} {
		store := &memory{}
		server, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source}})
		c := dial(t, "ws://"+addr+"/ws/ingest"+query)
		send(t, c, "a", "b")
		for len(store.content()) < 2 {
			time.Sleep(time.Millisecond)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- server.Shutdown(t.Context()) }()
		var closed *websocket.CloseError
		var err error
		for err == nil {
			_, err = c.Read()
		}
		if !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
			t.Errorf("%q: got %v, want code 1001", query, err)
		}
		c.Close(websocket.StatusGoingAway, "")
		if err := <-stopped; err != nil {
			t.Errorf("%q: %v", query, err)
		}
		resp, err := http.Get("http://" + addr + "/ws/ingest")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%q: a connection after the stop got %d, want 503", query, resp.StatusCode)
		}
	}
}

func TestShutdown_GivesUpWhenTimeIsOver(t *testing.T) {
	t.Parallel()
	store := &memory{hold: make(chan struct{})}
	server := gateway.New(gateway.Config{Engine: engine.Engine{Ingest: store.source}})
	front := httptest.NewServer(server)
	defer front.Close()
	c := dial(t, "ws"+strings.TrimPrefix(front.URL, "http")+"/ws/ingest?ack=1")
	send(t, c, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	time.AfterFunc(500*time.Millisecond, func() { close(store.hold) })
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v, want the context's error", err)
	}
}

func TestEcho_ReturnsEveryMessageWithItsOpcode(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, gateway.Config{Only: gateway.Echo})
	c := dial(t, "ws://"+addr+"/ws")
	var want []string
	for i := range 100 {
		op := websocket.OpText + websocket.Opcode(i%2)
		text := strings.Repeat("x", i*i*10)
		want = append(want, fmt.Sprint(op, text))
		if err := c.Queue(op, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	c.Flush()
	var got []string
	for len(got) < len(want) {
		messages, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			got = append(got, fmt.Sprint(m.Op, string(m.Payload)))
		}
	}
	if !slices.Equal(got, want) {
		t.Error("echoes differ from what was sent")
	}
}

func TestHTTP_Answers(t *testing.T) {
	t.Parallel()
	store := &memory{}
	var ready error
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Ingest: store.source, Ready: func(context.Context) error { return ready }}})
	for _, c := range []struct {
		path string
		want int
		body string
	}{
		{"/healthz", 200, "ok"},
		{"/health", 200, "ok"},
		{"/readyz", 200, "ok"},
		{"/metrics", 200, "tidewire_connections 0"},
		{"/nothing", 404, ""},
		{"/ws/ingest", 426, ""},
		{"/ws/ingest?ack=perhaps", 400, "ack"},
	} {
		resp, err := http.Get("http://" + addr + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || !strings.Contains(string(body), c.body) {
			t.Errorf("%s: %d %q, want %d and %q", c.path, resp.StatusCode, body, c.want, c.body)
		}
	}
	ready = errors.New("password of the database is secret")
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 503 || strings.Contains(string(body), "secret") {
		t.Errorf("/readyz: %d %q, want 503 and nothing internal", resp.StatusCode, body)
	}
	ready = &engine.NotReadyError{Reason: "the disk is full", Err: ready}
	if resp, err = http.Get("http://" + addr + "/readyz"); err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 503 || string(body) != "not ready: the disk is full\n" {
		t.Errorf("/readyz: %d %q, want 503 and why", resp.StatusCode, body)
	}
}
