package main

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// server is the HTTP side: it turns requests into clients.
type server struct {
	cfg      config
	upgrader websocket.Upgrader
	hub      *hub
	stats    stats
	started  time.Time

	mu       sync.Mutex
	stopped  bool
	stopping chan struct{} // closed by stop
	clients  sync.WaitGroup
}

func newServer(cfg config) *server {
	s := &server{cfg: cfg, started: time.Now(), stopping: make(chan struct{})}
	s.hub = newHub(&s.stats)
	go s.hub.run()
	return s
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ws", s.serveWS)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	return mux
}

func (s *server) serveWS(w http.ResponseWriter, r *http.Request) {
	if !s.admit() {
		http.Error(w, "server is shutting down", http.StatusServiceUnavailable)
		return
	}
	conn, err := s.upgrader.Upgrade(w, r, nil)
	if err != nil {
		s.clients.Done()
		return // Upgrade has answered already
	}
	s.stats.opened()
	c := newClient(s, conn)
	// Both run in new goroutines, so that the memory that HTTP holds for the
	// request is released.
	go c.writePump()
	go func() {
		defer s.clients.Done()
		defer s.stats.closed()
		c.readPump()
	}()
}

// admit counts a new client, unless the server is stopping.
func (s *server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.clients.Add(1)
	}
	return !s.stopped
}

// stop closes all connections with code 1001 and waits until they have ended.
func (s *server) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	close(s.stopping)
	s.clients.Wait()
	s.hub.stop()
}
