// Package natstest starts NATS servers as an operator has them, for tests.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Start starts a server on loopback, at options.Port or, if that is 0, at a free port. It ends with the test.
func Start(t testing.TB, options *server.Options) *server.Server {
	t.Helper()
	options.Host, options.NoSigs, options.NoLog = "127.0.0.1", true, true
	if options.Port == 0 {
		options.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { Stop(s) })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("NATS does not start")
	}
	return s
}

// Stop ends a server before the end of its test.
func Stop(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}
