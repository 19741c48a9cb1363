package bench

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// chatServer is a minimal server with one public room: each chat goes to each
// of the other members, as many times as copies returns; 1 is correct.
type chatServer struct {
	url    string
	copies func(delivery int) int      // called with mu held
	encode func(payload []byte) []byte // as it was sent, if nil

	mu         sync.Mutex
	members    map[*websocket.Conn]bool
	deliveries int
}

func newChatServer(t *testing.T) *chatServer {
	t.Helper()
	s := &chatServer{copies: func(int) int { return 1 }, members: make(map[*websocket.Conn]bool)}
	s.url = served(t, s.serve)
	return s
}

func (s *chatServer) serve(c *websocket.Conn) {
	for {
		messages, err := c.Read()
		for _, m := range messages {
			s.handle(c, m.Payload)
		}
		if err != nil {
			s.mu.Lock()
			delete(s.members, c)
			s.mu.Unlock()
			c.Close(websocket.StatusNormal, "")
			return
		}
	}
}

func (s *chatServer) handle(c *websocket.Conn, p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case bytes.Contains(p, []byte(`"join"`)):
		s.members[c] = true
	case bytes.Contains(p, []byte(`"ping"`)):
		c.Queue(websocket.OpText, []byte(`{"type":"pong"}`))
		c.Flush()
	case bytes.Contains(p, []byte(`"leave"`)):
		delete(s.members, c)
	case bytes.Contains(p, []byte(`"chat"`)):
		if s.encode != nil {
			p = s.encode(p)
		}
		for other := range s.members {
			if other != c {
				s.deliver(other, p)
			}
		}
	}
}

func (s *chatServer) deliver(to *websocket.Conn, p []byte) {
	s.deliveries++
	for range s.copies(s.deliveries) {
		to.Queue(websocket.OpText, p)
	}
	to.Flush()
}

func lively(url string) ChatConfig {
	return ChatConfig{URL: url, Clients: 10, Hold: time.Second, Rate: 20, Payload: 128, Checked: 10, Patience: time.Minute}
}

func runChat(t *testing.T, cfg ChatConfig) ChatResult {
	t.Helper()
	r, err := RunChat(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestChat_KnowsChatsThatWereEncodedAnew(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	s.encode = func(p []byte) []byte {
		_, text, _ := bytes.Cut(p, []byte(`"text":"`))
		return fmt.Appendf(nil, `{"text":"%s,"room":"public"}`, bytes.TrimSuffix(text, []byte("}")))
	}
	cfg := lively(s.url)
	cfg.Hold += time.Second // the last second is not checked one by one
	if r := runChat(t, cfg); r.Lost() != 0 || r.Checked.Received == 0 || r.Latency.Count() == 0 {
		t.Errorf("%+v", r)
	}
}

func TestChat_AServerThatEndsIsAResult(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	s.copies = func(delivery int) int {
		if delivery == 500 {
			for c := range s.members {
				c.Abort()
			}
		}
		return 1
	}
	cfg := lively(s.url)
	cfg.Patience = time.Second
	r := runChat(t, cfg)
	if r.Errors["read"]+r.Errors["write"] == 0 || r.FirstError["read"]+r.FirstError["write"] == "" {
		t.Errorf("connections were cut, and the errors are %v", r.Errors)
	}
}

func TestChatCheck_TellsOrder(t *testing.T) {
	t.Parallel()
	var h chatHistory
	for n := range 6 { // two clients in turn, a second apart
		h.add(n%2, 0, time.Duration(n)*time.Second)
	}
	c := newChatCheck(2, 3, 0)
	c.joined = 0
	for _, n := range []int{0, 2, 1, 3, 5, 5} { // 1 after 2 is another client's
		c.arrived(n%2, n)
	}
	c.arrived(0, 4)
	c.arrived(0, 2)
	if d := c.finish(&h, 0, 10*time.Second); d != (Deliveries{Expected: 6, Received: 6, Duplicated: 2}) {
		t.Errorf("%+v", d)
	}
	c = newChatCheck(2, 3, 0)
	c.joined = time.Second
	c.arrived(1, 3)
	c.arrived(1, 1)
	if d := c.finish(&h, 0, 4*time.Second); d != (Deliveries{Expected: 3, Received: 2, Reordered: 1}) {
		t.Errorf("%+v", d) // of 1, 2, 3; 2 is missing
	}
}
