package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// Engine is the lifecycle of an engine: it starts before the first request and stops after the
// last one.
type Engine interface {
	Run(ctx context.Context)
	// Abandon gives up accepted messages that are not stored: clients get the answer that the outcome
	// is unknown.
	Abandon()
	// Stop waits until everything that was accepted is stored, or until ctx ends.
	Stop(ctx context.Context) error
}

// Config configures Run.
type Config struct {
	Gateway gateway.Config
	Engine  Engine // nil if nothing is stored
	// Front answers at the listeners already. Defaults to none.
	Front     *Front
	Listeners []net.Listener
	// Admin are listeners of /metrics and /debug/pprof/ alone, and AdminAccess the host names that they have. Defaults to none.
	Admin       []net.Listener
	AdminAccess *websocket.Access
	// IdleTimeout is how long an HTTP connection may stay open between two requests.
	IdleTimeout time.Duration
	// Drain is the time over which connections are closed before the stop begins. Defaults to none.
	Drain time.Duration
	// HeaderTimeout is how long a TLS handshake may take, and then the header of a request. Defaults to 10 s.
	HeaderTimeout time.Duration
	// Background is called in its own goroutine while the server runs. Its context ends when the server begins to stop. Defaults to nothing.
	Background func(context.Context, *gateway.Server)
	// MaxHeaderBytes is the largest header of a request. Defaults to 16 KiB.
	MaxHeaderBytes int
	// Listening is called when the server answers requests, and Stopped after the last answer. Both default to
	// nothing.
	Listening func()
	Stopped   func(*gateway.Server) error
}

// server is what Run runs.
type server struct {
	cfg     Config
	stop    *Stop
	gateway *gateway.Server
	front   *Front
}

// Run serves until ctx ends. Then it stores and answers everything received, and closes the connections, within their
// shares of the stop's time.
func Run(ctx context.Context, stop *Stop, cfg Config) error {
	if cfg.Engine == nil {
		return listenAndServe(ctx, stop, cfg)
	}
	cfg.Engine.Run(context.WithoutCancel(ctx))
	err := listenAndServe(ctx, stop, cfg)
	writing, cancel := stop.Stage("storing what was received", shareWriters)
	defer cancel()
	return errors.Join(err, cfg.Engine.Stop(writing))
}

func listenAndServe(ctx context.Context, stop *Stop, cfg Config) error {
	cfg.Gateway.Admin = len(cfg.Admin) > 0
	edge := gateway.New(cfg.Gateway)
	s := &server{cfg: cfg, stop: stop, gateway: edge, front: cfg.Front}
	if s.front == nil {
		s.front = newFront(cfg)
	}
	log := cfg.Gateway.Log
	stopLog := make(chan struct{})
	var logging sync.WaitGroup
	logging.Go(func() { logEvictions(cfg.Gateway.Budget, log, evictionsEvery, stopLog) })
	defer logging.Wait()
	defer close(stopLog)
	defer s.front.admin.Close() // the last of all, so that a stop can be watched
	s.front.open(edge, cfg)
	if cfg.Front == nil {
		s.front.serve(cfg)
	}
	background, endBackground := context.WithCancel(ctx)
	defer endBackground()
	if cfg.Background != nil {
		logging.Go(func() { cfg.Background(background, edge) })
	}
	stop.doing("serving")
	if cfg.Listening != nil {
		cfg.Listening()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.front.failed:
		s.front.failed <- nil
	}
	s.drain(stop)
	stop.begin()
	log.Info("stopping")
	defer s.giveUpInTime()()
	err = errors.Join(err, s.stopHTTP(), s.stopConnections())
	for range cfg.Listeners {
		<-s.front.failed
	}
	if cfg.Stopped != nil {
		err = errors.Join(err, cfg.Stopped(edge))
	}
	return err
}

// drain closes the connections one after another, until the stop begins.
func (s *server) drain(stop *Stop) {
	if s.cfg.Drain == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop.begun:
			cancel()
		case <-ctx.Done():
		}
	}()
	stop.doing("draining")
	s.front.http.SetKeepAlivesEnabled(false)
	s.gateway.Drain(ctx, s.cfg.Drain)
}

// stopHTTP closes the listeners and the idle connections, and waits for running
// requests. Requests that do not end in time are cut off.
func (s *server) stopHTTP() error {
	ctx, cancel := s.stop.Stage("answering HTTP requests", shareHTTP)
	defer cancel()
	err := s.front.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("HTTP requests cut off: their clients do not read, or what they asked for takes too long: %w", err), s.front.http.Close())
}

// stopConnections closes WebSockets after everything received on them is
// answered.
func (s *server) stopConnections() error {
	ctx, cancel := s.stop.Stage("closing WebSockets", shareEdges)
	defer cancel()
	return s.gateway.Shutdown(ctx)
}

// giveUpInTime arranges that requests are given up while there is still time to
// answer them: first those that store messages, then all others. The function that
// it returns cancels that.
func (s *server) giveUpInTime() (end func()) {
	if s.cfg.Engine == nil {
		return func() {}
	}
	stored := s.stop.after(shareStored, s.cfg.Engine.Abandon)
	reads := s.stop.after(shareReads, s.gateway.GiveUp)
	return func() {
		stored()
		reads()
	}
}
