package faulty

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// Server is a WebSocket server. Set its fields before the first connection.
type Server struct {
	URL string
	// Stall is how long the whole server pauses when message number StallAt,
	// from 1 on, arrives.
	Stall   time.Duration
	StallAt int

	vice Vice
	open func(c *websocket.Conn) session
	http *httptest.Server

	mu      sync.Mutex // held while messages are handled, so that a stall affects all connections
	read    int
	serving []chan struct{} // each closed when its connection has ended
}

// session has the handlers of a connection.
type session struct {
	message func(p []byte)
	turn    func() // called when all that was read has been handled; may be nil
	ended   func() // called before the closing handshake; may be nil
}

func start(vice Vice, open func(c *websocket.Conn) session) *Server {
	s := &Server{vice: vice, open: open}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Upgrade(w, r, websocket.Config{}); err == nil {
			s.mu.Lock() // otherwise Close might miss this connection
			defer s.mu.Unlock()
			done := make(chan struct{})
			s.serving = append(s.serving, done)
			go func() {
				defer close(done)
				s.serve(c)
			}()
		}
	}))
	s.URL = "ws" + strings.TrimPrefix(s.http.URL, "http")
	return s
}

// Port is the port that the server listens on.
func (s *Server) Port() string { return s.URL[strings.LastIndex(s.URL, ":")+1:] }

// Close ends the server after its connections have ended.
func (s *Server) Close() {
	s.http.Close()
	s.mu.Lock()
	serving := s.serving
	s.mu.Unlock()
	for _, done := range serving {
		<-done
	}
}

func (s *Server) serve(c *websocket.Conn) {
	what := s.open(c)
	for {
		messages, err := c.Read()
		if len(messages) > 0 {
			s.vice.Wait()
		}
		s.handle(messages, what)
		if err != nil {
			if what.ended != nil {
				what.ended()
			}
			c.Close(websocket.StatusNormal, "")
			return
		}
	}
}

func (s *Server) handle(messages []websocket.Message, what session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if s.read++; s.read == s.StallAt {
			time.Sleep(s.Stall)
		}
		what.message(m.Payload)
	}
	if len(messages) > 0 && what.turn != nil {
		what.turn()
	}
}

// Echo returns a server that echoes messages, with the vice.
func Echo(vice Vice) *Server {
	return start(vice, func(c *websocket.Conn) session {
		out := Outlet{Vice: vice}
		return session{message: func(p []byte) {
			out.Pass(p, func(p []byte) { c.Queue(websocket.OpText, p) })
		}}
	})
}

// Lanes returns a server that echoes messages, with the vice, and pushes a dummy
// of that many bytes after each.
func Lanes(vice Vice, dummy int) *Server {
	push := bytes.Repeat([]byte("d"), dummy)
	return start(vice, func(c *websocket.Conn) session {
		out := Outlet{Vice: vice}
		return session{message: func(p []byte) {
			if bytes.Contains(p, []byte("hello")) {
				return
			}
			out.Pass(p, func(p []byte) { c.Queue(websocket.OpText, p) })
			c.Queue(websocket.OpText, push)
		}}
	})
}

// Ingest returns a server that acknowledges the number of received messages, with
// the vice in the counts, and passes all messages of a connection to store when
// the connection ends.
func Ingest(acks Vice, store func(messages [][]byte)) *Server {
	return start(acks, func(c *websocket.Conn) session {
		var messages [][]byte
		out := Outlet{Vice: acks}
		return session{
			message: func(p []byte) {
				messages = append(messages, bytes.Clone(p))
				count := strconv.AppendInt(nil, int64(len(messages)), 10)
				out.Pass(count, func(p []byte) { c.Queue(websocket.OpText, p) })
			},
			ended: func() { store(messages) },
		}
	})
}
