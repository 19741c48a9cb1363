package main

import (
	"sync"
	"time"

	"github.com/gofiber/contrib/websocket"
	"github.com/gofiber/fiber/v2"
)

// chat is the application: the hub and all connections to it.
type chat struct {
	settings settings
	hub      *hub
	figures  figures
	started  time.Time
	stopping chan struct{} // closed at the stop

	mu      sync.Mutex // guards closed, and so Add against Wait
	closed  bool
	members sync.WaitGroup
}

func newChat(s settings) *chat {
	c := &chat{settings: s, started: time.Now(), stopping: make(chan struct{})}
	c.hub = newHub(&c.figures)
	go c.hub.run()
	return c
}

func (c *chat) app() *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true, ReadTimeout: 10 * time.Second})
	app.Get("/healthz", func(ctx *fiber.Ctx) error { return ctx.SendString("ok\n") })
	app.Use("/ws", func(ctx *fiber.Ctx) error {
		if websocket.IsWebSocketUpgrade(ctx) {
			return ctx.Next()
		}
		return fiber.ErrUpgradeRequired
	})
	app.Get("/ws", websocket.New(c.serve))
	return app
}

// serve is the middleware's handler: the connection ends when it returns.
func (c *chat) serve(conn *websocket.Conn) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.members.Add(1)
	c.mu.Unlock()
	defer c.members.Done()
	c.figures.connect()
	defer c.figures.disconnect()

	m := newMember(c, conn)
	written := make(chan struct{})
	go func() {
		defer close(written)
		m.write()
	}()
	m.read()
	for room := range m.rooms {
		m.leave(room)
	}
	close(m.ended)
	<-written // after serve has returned, the middleware reuses conn
}

// shutdown closes all connections with code 1001 and waits for their ends.
func (c *chat) shutdown() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	close(c.stopping)
	c.members.Wait()
	close(c.hub.done)
}
