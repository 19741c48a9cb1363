package websocket

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// request is the example of RFC 6455, section 1.3, without its Origin.
func request(change func(h http.Header)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://server.example.com/chat", nil)
	r.Header = http.Header{
		"Upgrade":               {"websocket"},
		"Connection":            {"Upgrade"},
		"Sec-Websocket-Key":     {"dGhlIHNhbXBsZSBub25jZQ=="},
		"Sec-Websocket-Version": {"13"},
	}
	if change != nil {
		change(r.Header)
	}
	return r
}

func TestUpgrade_refuses(t *testing.T) {
	t.Parallel()
	set := func(name, value string) *http.Request {
		return request(func(h http.Header) { h.Set(name, value) })
	}
	post := request(nil)
	post.Method = http.MethodPost
	old := request(nil)
	old.ProtoMinor = 0
	two := request(nil)
	two.ProtoMajor = 2
	withBody := request(nil)
	withBody.ContentLength = 6
	chunked := request(nil)
	chunked.ContentLength, chunked.TransferEncoding = -1, []string{"chunked"}
	for _, test := range []struct {
		name string
		r    *http.Request
		want int
	}{
		{"POST", post, 405},
		{"HTTP/1.0", old, 400},
		{"HTTP/2", two, 400},
		{"a plain GET", httptest.NewRequest("GET", "/", nil), 426},
		{"Upgrade: h2c", set("Upgrade", "h2c"), 426},
		{"Connection: close", set("Connection", "close"), 400},
		{"Sec-WebSocket-Version: 8", set("Sec-WebSocket-Version", "8"), 426},
		{"no version", request(func(h http.Header) { h.Del("Sec-WebSocket-Version") }), 426},
		{"no key", request(func(h http.Header) { h.Del("Sec-WebSocket-Key") }), 400},
		{"two keys", request(func(h http.Header) { h.Add("Sec-WebSocket-Key", h.Get("Sec-WebSocket-Key")) }), 400},
		{"short key", set("Sec-WebSocket-Key", "c2hvcnQ="), 400},
		{"key not base64", set("Sec-WebSocket-Key", "!"), 400},
		{"a body", withBody, 400},
		{"a body in chunks", chunked, 400},
		{"page of another host", set("Origin", "https://evil.example.net"), 403},
		{"page of no host", set("Origin", "null"), 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			if c, err := Upgrade(w, test.r, Config{}); c != nil || err == nil {
				t.Fatal("upgraded")
			}
			if w.Code != test.want {
				t.Errorf("answered %d", w.Code)
			}
			if body := w.Body.String(); strings.Count(body, "\n") != 1 || len(body) < 10 {
				t.Errorf("body %q", body)
			}
			switch h := w.Header(); w.Code {
			case 405:
				if h.Get("Allow") != "GET" {
					t.Error(h)
				}
			case 426:
				if h.Get("Sec-WebSocket-Version") != "13" || h.Get("Upgrade") != "websocket" || h.Get("Connection") != "Upgrade" {
					t.Error(h)
				}
			}
		})
	}
}

// TestUpgrade_leftover sends messages together with the handshake, and expects
// the answer of RFC 6455's example.
func TestUpgrade_leftover(t *testing.T) {
	t.Parallel()
	conns := make(chan *Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Node", "a")
		c, err := Upgrade(w, r, Config{Subprotocols: []string{"v2", "v1"}})
		if err != nil {
			t.Error(err)
			return
		}
		conns <- c
	}))
	defer s.Close()
	socket, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	const n = 300 // more than the HTTP server's buffer holds
	fmt.Fprintf(socket, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, upgrade\r\nUpgrade: WebSocket\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v1, v2\r\n\r\n%s",
		s.Listener.Addr(), strings.Repeat(string(frame(true, OpText, "early bird")), n))
	answer, err := http.ReadResponse(bufio.NewReader(socket), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
		"Sec-WebSocket-Protocol": "v2", "X-Node": "a",
	} {
		if got := answer.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c := <-conns
	defer c.Abort()
	if c.Subprotocol() != "v2" {
		t.Errorf("subprotocol %q", c.Subprotocol())
	}
	socket.(*net.TCPConn).CloseWrite()
	if got, err := readAll(c); len(got) != n || err != io.EOF {
		t.Errorf("%d messages, %v", len(got), err)
	}
}

func TestConfig_validate(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	if _, err := Upgrade(w, request(nil), Config{MaxUnsent: -1}); err == nil || !strings.Contains(err.Error(), "MaxUnsent") || w.Code != 500 {
		t.Error(err, w.Code)
	}
}

// A body is not read as frames, and nothing after it is read at all: a proxy may
// disagree about where it ends.
func TestUpgrade_body(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := Upgrade(w, r, Config{}); err == nil {
			t.Error("upgraded")
			c.Abort()
		}
	}))
	defer s.Close()
	frame := string(AppendMaskedFrame(nil, OpText, [4]byte{1, 2, 3, 4}, []byte("smuggled")))
	head := "GET / HTTP/1.1\r\nHost: " + s.Listener.Addr().String() + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
	for name, rest := range map[string]string{
		"length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(frame), frame),
		"chunks": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(frame), frame),
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, head+rest+head+"\r\n"); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		answer, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != 400 || !answer.Close {
			t.Errorf("%s: answered %d, closes: %v", name, answer.StatusCode, answer.Close)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		if rest, _ := io.ReadAll(in); len(rest) > 0 { // the end may be a reset
			t.Errorf("%s: after the answer came %q", name, rest)
		}
		_ = conn.Close()
	}
}
