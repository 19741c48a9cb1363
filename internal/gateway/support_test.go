package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/limits"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// patience is how long a test waits for an expected event.
const patience = 2 * time.Minute

// TestMain lets more tests run in parallel than there are processors, because most of them wait.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "4")
	}
	http.DefaultTransport = recordingTransport{http.DefaultTransport.(*http.Transport)}
	goleak.VerifyTestMain(compared{m})
}

// serve runs a gateway and returns its address; it is shut down at the end.
func serve(t *testing.T, cfg gateway.Config) (*gateway.Server, string) {
	t.Helper()
	if cfg.Chat.PingInterval == 0 && cfg.Chat.PongTimeout == 0 { // a busy machine may take longer than the defaults
		cfg.Chat.PingInterval, cfg.Chat.PongTimeout = time.Hour, time.Hour
	}
	server := gateway.New(cfg)
	return server, expose(t, server, nil)
}

// expose gives a server an address, until the end of the test. With a registry its sockets are counted.
func expose(t *testing.T, server *gateway.Server, registry *limits.Registry) string {
	t.Helper()
	if bubbled() {
		return serveInBubble(t, server, registry)
	}
	front := httptest.NewUnstartedServer(server)
	if registry != nil {
		front.Listener, front.Config.ConnContext = registry.Listener(front.Listener), limits.ConnContext
	}
	front.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		front.Close()
	})
	return strings.TrimPrefix(front.URL, "http://")
}

// serveAll serves all endpoints, with a stream orders and a queue jobs, and event stores.
func serveAll(t *testing.T) (*fakeStreams, *fakeQueues, *gateway.Server, string) {
	t.Helper()
	streams, queues := newFakeStreams(t, "orders"), newFakeQueues(t, "jobs")
	server, addr := serve(t, gateway.Config{
		Engine:     engine.Engine{Ingest: (&memory{}).source, Streams: streams, Queues: queues, Events: newFakeEvents()},
		Sessions:   gateway.SessionConfig{MaxSubscriptions: 3},
		MaxMessage: 256 << 10,
	})
	return streams, queues, server, addr
}

// socket is a WebSocket of a client.
type socket interface {
	Queue(websocket.Opcode, []byte) error
	Flush() error
	Read() ([]websocket.Message, error)
	SetReadDeadline(time.Time) error
	StartClose(websocket.StatusCode, string)
	Close(websocket.StatusCode, string) error
	Abort()
}

func dial(t *testing.T, url string) socket {
	t.Helper()
	return dialAs(t, url, websocket.Config{})
}

func dialAs(t *testing.T, url string, cfg websocket.Config) socket {
	t.Helper()
	c, err := dialSocket(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	return c
}

func send(t *testing.T, c socket, texts ...string) {
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

// endOf reads to the end of a connection, and returns what came and the error there.
func endOf(c socket) (all []string, err error) {
	c.SetReadDeadline(time.Now().Add(patience))
	for err == nil {
		var messages []websocket.Message
		messages, err = read(c)
		for _, m := range messages {
			all = append(all, string(m.Payload))
		}
	}
	return all, err
}

func isClose(err error, code websocket.StatusCode) bool {
	closed, ok := errors.AsType[*websocket.CloseError](err)
	return ok && closed.Code == code
}

// closeOf reads until the connection is closed, and returns the code. With a code of Tidewire's own comes a reason.
func closeOf(t *testing.T, c socket) websocket.StatusCode {
	t.Helper()
	_, err := endOf(c)
	closed, ok := errors.AsType[*websocket.CloseError](err)
	if !ok {
		t.Fatal(err)
	}
	if closed.Code >= 4000 && closed.Reason == "" {
		t.Errorf("closed with %d, without a reason", closed.Code)
	}
	return closed.Code
}

// wire is a client that reads one message at a time.
type wire struct {
	socket
	t    *testing.T
	read []string
}

func connect(t *testing.T, addr string) *wire {
	t.Helper()
	return &wire{socket: dial(t, "ws://"+addr+"/ws"), t: t}
}

// next returns the next message.
func (w *wire) next() string {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(patience))
	for len(w.read) == 0 {
		messages, err := read(w.socket)
		for _, m := range messages {
			w.read = append(w.read, untimed(m.Payload))
		}
		if err != nil && len(w.read) == 0 {
			w.t.Fatalf("reading: %v", err)
		}
	}
	first := w.read[0]
	w.read = w.read[1:]
	return first
}

// want expects exactly these messages, in this order.
func (w *wire) want(lines ...string) {
	w.t.Helper()
	for _, line := range lines {
		if got := w.next(); got != line {
			w.t.Fatalf("got %s\nwant %s", got, line)
		}
	}
}

// until reads up to a message with a text, and returns that message.
func (w *wire) until(text string) string {
	w.t.Helper()
	for {
		if got := w.next(); strings.Contains(got, text) {
			return got
		}
	}
}

// ask sends a request and expects one answer.
func (w *wire) ask(text, answer string) {
	w.t.Helper()
	send(w.t, w.socket, text)
	w.want(answer)
}

// pong waits until everything before it has been handled, and nothing has come.
func (w *wire) pong() {
	w.t.Helper()
	w.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
}

// silent expects no message for a while.
func (w *wire) silent(d time.Duration) {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(d))
	messages, err := read(w.socket)
	if len(w.read)+len(messages) > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("got %d messages and %v, want silence", len(w.read)+len(messages), err)
	}
}

// code sends a request with the id x, and returns "ok" or the code of the error that is the answer.
func (w *wire) code(text string) string {
	w.t.Helper()
	send(w.t, w.socket, text)
	var got struct {
		Type, Code, Message string
		ID                  any
	}
	answer := w.next()
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		w.t.Fatal(err)
	}
	if got.ID != "x" || got.Type == "error" && got.Message == "" {
		w.t.Errorf("%s was answered with %s", text, answer)
	}
	if got.Type == "error" {
		return got.Code
	}
	return got.Type
}

// client is an HTTP client of a server.
type client struct {
	t    *testing.T
	addr string
}

// fetch sends a request with an optional JSON body and headers (names and values), and returns the answer with its body.
func (c client) fetch(method, path, body string, headers ...string) (*http.Response, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.addr+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := httpOf(c.addr).Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp, strings.TrimSpace(string(text))
}

// do is fetch for an answer of the API: it returns the status.
func (c client) do(method, path, body string, headers ...string) (int, string) {
	c.t.Helper()
	resp, text := c.fetch(method, path, body, headers...)
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" && strings.HasPrefix(path, "/v1/") {
		c.t.Errorf("%s %s: Content-Type %q", method, path, kind)
	}
	if resp.StatusCode == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "" {
		c.t.Errorf("%s %s: no Allow header", method, path)
	}
	return resp.StatusCode, text
}

// want sends a request and expects this answer.
func (c client) want(method, path, body string, status int, answer string) {
	c.t.Helper()
	if code, text := c.do(method, path, body); code != status || text != answer {
		c.t.Errorf("%s %s %.100s\n got %d %s\nwant %d %s", method, path, body, code, text, status, answer)
	}
}

// refused sends a request and expects that error code.
func (c client) refused(method, path, body string, status int, want string, headers ...string) {
	c.t.Helper()
	code, text := c.do(method, path, body, headers...)
	var got struct {
		Error struct{ Code, Message string }
	}
	json.Unmarshal([]byte(text), &got)
	if code != status || got.Error.Code != want || got.Error.Message == "" {
		c.t.Errorf("%s %s %.100s\n got %d %s\nwant %d %s", method, path, body, code, text, status, want)
	}
}

// get is the answer to a request with a token, which has to succeed.
func (c client) get(into any, method, path, body, token string) string {
	c.t.Helper()
	status, text := c.do(method, path, body, "Authorization", "Bearer "+token)
	if status != http.StatusOK {
		c.t.Fatalf("%s %s %s: %d %s", method, path, body, status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		c.t.Fatal(err)
	}
	return text
}

// metric reports whether a line is at /metrics.
func (c client) metric(line string) bool {
	c.t.Helper()
	_, text := c.do("GET", "/metrics", "")
	return strings.Contains("\n"+text+"\n", "\n"+line+"\n")
}

// waitMetric waits until /metrics has the line: much is counted just after it was done.
func waitMetric(t *testing.T, addr, line string) {
	t.Helper()
	testkit.Eventually(t, "/metrics has "+line, func() bool { return client{t, addr}.metric(line) })
}

// stopping waits until a server has begun to stop.
func stopping(t *testing.T, addr string) {
	t.Helper()
	testkit.Eventually(t, "the stop begins", func() bool { status, _ := client{t, addr}.do("GET", "/readyz", ""); return status == 503 })
}

// shutdown stops a server meanwhile.
func shutdown(t *testing.T, s *gateway.Server) (wait func()) {
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	return func() {
		t.Helper()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

// quoted is a JSON string.
func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// numbered are texts for the numbers from 1 to n.
func numbered(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i+1))
	}
	return all
}
