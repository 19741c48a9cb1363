// Command go-fiber is a chat server on Fiber and its WebSocket middleware. It is
// based on the chat example of Fiber's recipes: a hub goroutine receives joins,
// leaves and chats.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// settings are the options of the command line.
type settings struct {
	Host         string
	Port         string
	Duration     float64 // seconds, as all times here; 0: until stopped
	RateLimit    float64 // chats a second of a connection
	RateBurst    float64
	PingInterval float64
	PongTimeout  float64
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func readSettings(args []string) (s settings, err error) {
	fs := flag.NewFlagSet("go-fiber [flags] [PORT [DURATION]]", flag.ContinueOnError)
	fs.StringVar(&s.Host, "host", "127.0.0.1", "address to listen on")
	fs.StringVar(&s.Port, "port", "8080", "port to listen on; 0 chooses a free port")
	fs.Float64Var(&s.Duration, "duration", 0, "stop after this number of seconds; 0 runs until stopped")
	fs.Float64Var(&s.RateLimit, "rate-limit", 10, "chats a second that a connection may send")
	fs.Float64Var(&s.RateBurst, "rate-burst", 10, "chats that a connection may send at once")
	fs.Float64Var(&s.PingInterval, "ping-interval", 30, "seconds between two pings")
	fs.Float64Var(&s.PongTimeout, "pong-timeout", 60, "seconds without a sign of life until a connection is closed")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	switch fs.NArg() {
	case 0:
	case 2:
		if s.Duration, err = strconv.ParseFloat(fs.Arg(1), 64); err != nil {
			return s, fmt.Errorf("DURATION is %q: want seconds", fs.Arg(1))
		}
		fallthrough
	case 1:
		s.Port = fs.Arg(0)
	default:
		return s, errors.New("too many arguments: want PORT and DURATION")
	}
	return s, s.check()
}

func (s settings) check() error {
	if _, err := strconv.ParseUint(s.Port, 10, 16); err != nil {
		return fmt.Errorf("the port is %q: want 0 to 65535", s.Port)
	}
	if !(s.Duration >= 0) || !(s.RateLimit > 0) || !(s.RateBurst >= 1) || !(s.PingInterval > 0) || !(s.PongTimeout > 0) {
		return errors.New("want times and rates above 0, and a burst of 1 or more")
	}
	return nil
}

func main() {
	s, err := readSettings(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-fiber:", err)
		os.Exit(2)
	}
	if err := serve(s); err != nil {
		fmt.Fprintln(os.Stderr, "go-fiber:", err)
		os.Exit(1)
	}
}

// serve runs until a signal or the duration's end, and prints the statistics.
func serve(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if s.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration(s.Duration))
		defer cancel()
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(s.Host, s.Port))
	if err != nil {
		return err
	}
	chat := newChat(s)
	app := chat.app()
	listening := make(chan error, 1)
	go func() { listening <- app.Listener(ln) }()
	fmt.Printf("listening on :%d\n", ln.Addr().(*net.TCPAddr).Port)
	select {
	case err := <-listening:
		return err
	case <-ctx.Done():
		stop() // a second signal ends the program at once
	}
	if err := app.ShutdownWithTimeout(5 * time.Second); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	chat.shutdown()
	return chat.figures.print(os.Stdout, time.Since(chat.started))
}
