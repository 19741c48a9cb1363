package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/wsproxy"
)

type testProxyCmd struct {
	Target  string `arg:"" help:"The server, as HOST:PORT."`
	Listen  string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where clients connect. Port 0: a free one."`
	Control string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where it is told over HTTP what to break. Everybody who reaches this address can. Port 0: a free one."`
}

func (testProxyCmd) Help() string {
	return `Prints two lines, and runs until it is stopped:

  clients: 127.0.0.1:40001
  control: http://127.0.0.1:40002

For example, end the connection before the first answer to a publish, and see the client repeat it:

  curl http://127.0.0.1:40002/rules -d '{"to":"client","answers":"publish","do":"cut_before"}'

A rule has: to (server or client: where the message goes), type, answers (the type of the request), skip, times (-1: all), do (cut_before, cut_after, drop, delay with delay_ms, or stall).
DELETE /rules ends all rules and stalls, POST /cut ends all connections, POST /refuse refuses new ones (?on=false accepts them again),
PUT /target?address=HOST:PORT changes the server, GET /state shows the connections.`
}

// Run is called by kong.
func (c *testProxyCmd) Run(p *process) error {
	if _, _, err := net.SplitHostPort(c.Target); err != nil {
		return exit(ExitUsage, "the target is %q: want HOST:PORT", c.Target)
	}
	proxy, err := wsproxy.New(c.Listen, c.Target)
	if err != nil {
		return exit(ExitListen, "--listen: %w", err)
	}
	defer proxy.Close()
	control, err := net.Listen("tcp", c.Control)
	if err != nil {
		return exit(ExitListen, "--control: %w", err)
	}
	server := &http.Server{Handler: proxy.Control(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(p.ctx, func() { server.Close() })()
	fmt.Fprintf(p.Out, "clients: %s\ncontrol: http://%s\n", proxy.Addr(), control.Addr())
	if err := server.Serve(control); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
