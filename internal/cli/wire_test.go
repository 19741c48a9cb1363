package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// wireMessage is any message of /ws about streams and queues.
type wireMessage struct {
	Type, Code, Payload, Delivery string
	Stream, Queue                 string
	Message, Field                string
	ID                            int
	Position                      int64
	Attempt                       int
	Count                         int
	Next, Last                    int64
	Partition                     int
	Duplicate                     bool
	Events                        []struct{ Position int64 }
}

// wire is a connection to /ws.
type wire struct {
	t *testing.T
	*websocket.Conn
	unread []wireMessage
}

func wireDial(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	return &wire{t: t, Conn: c}
}

// next returns the next message, or an error at the end of the connection.
func (w *wire) next() (m wireMessage, err error) {
	for len(w.unread) == 0 {
		messages, err := w.Read()
		for _, raw := range messages {
			var m wireMessage
			if err := json.Unmarshal(raw.Payload, &m); err != nil {
				return m, fmt.Errorf("%s: %w", raw.Payload, err)
			}
			w.unread = append(w.unread, m)
		}
		if err != nil && len(w.unread) == 0 {
			return m, err
		}
	}
	m, w.unread = w.unread[0], w.unread[1:]
	return m, nil
}

// ask sends a request and returns its answer. next returns the messages before
// it later.
func (w *wire) ask(format string, args ...any) wireMessage {
	w.t.Helper()
	say(w.Conn, format, args...)
	var others []wireMessage
	for {
		m, err := w.next()
		switch {
		case err != nil || m.Type == "error":
			w.t.Fatalf("%s: %+v, %v", fmt.Sprintf(format, args...), m, err)
		case m.Type == "ok":
			w.unread = append(others, w.unread...)
			return m
		}
		others = append(others, m)
	}
}

// request makes an HTTP request.
func request(t *testing.T, method, addr, path, body string) (status int, answer string) {
	t.Helper()
	status, answer, err := tryRequest(t.Context(), method, addr, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

// tryRequest is request for connections that may be aborted.
func tryRequest(ctx context.Context, method, addr, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(text)), err
}

// chatAnswer is any message of a chat server.
type chatAnswer struct {
	Type     string
	ID       int
	Text     string
	Room     string
	Code     string
	Position int64
	Last     int64
	Oldest   int64
	History  int
}

func chatDial(t *testing.T, addr string) *websocket.Conn {
	t.Helper()
	c, err := websocket.Dial(t.Context(), "ws://"+addr+"/ws/chat", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Abort)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	return c
}

func say(c *websocket.Conn, format string, args ...any) {
	c.Queue(websocket.OpText, fmt.Appendf(nil, format, args...))
	c.Flush()
}

// chatReader reads the messages of a connection.
type chatReader struct {
	t    *testing.T
	conn *websocket.Conn
	read []string
}

func (r *chatReader) next() string {
	r.t.Helper()
	for len(r.read) == 0 {
		r.conn.SetReadDeadline(time.Now().Add(time.Minute))
		messages, err := r.conn.Read()
		for _, m := range messages {
			r.read = append(r.read, string(m.Payload))
		}
		if err != nil && len(r.read) == 0 {
			r.t.Fatal(err)
		}
	}
	first := r.read[0]
	r.read = r.read[1:]
	return first
}

// answer returns the next message, decoded.
func (r *chatReader) answer() (a chatAnswer) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.next()), &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}

// asked is a request, and what the answer has to have.
type asked struct {
	request, body string
	status        int
	has           string // a part of the answer
}

func (a asked) of(t *testing.T, addr string) string {
	t.Helper()
	method, path, _ := strings.Cut(a.request, " ")
	status, text := request(t, method, addr, path, a.body)
	if status != a.status || !strings.Contains(text, a.has) {
		t.Errorf("%s %s: %d %s, want %d with %s", a.request, a.body, status, text, a.status, a.has)
	}
	return text
}

// getAs is the status of a GET with a token, or with none.
func getAs(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// answerTo sends a request, and returns the answer, whatever its status is.
func answerTo(t *testing.T, r *http.Request) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
