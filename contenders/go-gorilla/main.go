// Command go-gorilla is a chat server on net/http and gorilla/websocket. It is
// based on the library's chat example: a hub in one goroutine, and for each
// client a buffered channel, a goroutine that reads and one that writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	cfg, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-gorilla:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "go-gorilla:", err)
		os.Exit(1)
	}
}

// config has the values of the flags.
type config struct {
	host         string
	port         int
	duration     time.Duration
	rateLimit    float64 // chats a second of a connection
	rateBurst    float64
	pingInterval time.Duration
	pongTimeout  time.Duration
}

func parseFlags(args []string) (config, error) {
	var c config
	flags := flag.NewFlagSet("go-gorilla [flags] [PORT [DURATION]]", flag.ContinueOnError)
	flags.StringVar(&c.host, "host", "127.0.0.1", "address to listen on")
	flags.IntVar(&c.port, "port", 8080, "port to listen on; 0 chooses a free port")
	duration := flags.Float64("duration", 0, "seconds until it stops; 0 runs until stopped")
	flags.Float64Var(&c.rateLimit, "rate-limit", 10, "chats a second of one connection")
	flags.Float64Var(&c.rateBurst, "rate-burst", 10, "chats at once of one connection")
	interval := flags.Float64("ping-interval", 30, "seconds between pings")
	timeout := flags.Float64("pong-timeout", 60, "seconds of silence after which a connection is closed")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	var err error
	if flags.NArg() > 0 {
		if c.port, err = strconv.Atoi(flags.Arg(0)); err != nil {
			return c, fmt.Errorf("port %q is not a number", flags.Arg(0))
		}
	}
	if flags.NArg() > 1 {
		if *duration, err = strconv.ParseFloat(flags.Arg(1), 64); err != nil {
			return c, fmt.Errorf("duration %q is not a number of seconds", flags.Arg(1))
		}
	}
	if !(*duration >= 0 && c.rateLimit > 0 && c.rateBurst >= 1 && *interval > 0 && *timeout > 0) || flags.NArg() > 2 {
		return c, errors.New("want PORT and DURATION at most, times and rates above 0, and a burst of at least 1; see --help")
	}
	c.duration, c.pingInterval, c.pongTimeout = seconds(*duration), seconds(*interval), seconds(*timeout)
	return c, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// run serves until ctx or the duration ends, and prints the statistics.
func run(ctx context.Context, cfg config) error {
	l, err := net.Listen("tcp", net.JoinHostPort(cfg.host, strconv.Itoa(cfg.port)))
	if err != nil {
		return err
	}
	if cfg.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.duration)
		defer cancel()
	}
	chat := newServer(cfg)
	httpServer := &http.Server{Handler: chat.handler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- httpServer.Serve(l) }()
	fmt.Printf("listening on :%d\n", l.Addr().(*net.TCPAddr).Port)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 2*closeWait)
	defer cancel()
	if err := httpServer.Shutdown(grace); err != nil {
		httpServer.Close() // a request that did not end in time
	}
	chat.stop()
	return chat.stats.write(os.Stdout, time.Since(chat.started))
}
