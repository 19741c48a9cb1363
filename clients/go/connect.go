package tidewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	dialTimeout = 10 * time.Second
	steady      = 10 * time.Second // after so long connected, pauses begin from the start
	maxPause    = 20 * time.Second
)

// pause returns how long to wait before attempt n: full jitter.
func pause(n int) time.Duration {
	return rand.N(min(maxPause, 250*time.Millisecond<<min(n, 10)) + 1)
}

// longestRetry is the longest pause that a server can ask for.
const longestRetry = 24 * time.Hour

// milliseconds returns a pause that the server asks for: none if it is negative, and at most a day.
func milliseconds(n float64) time.Duration {
	if !(n > 0) { // also what is no number
		return 0
	}
	return time.Duration(min(n, float64(longestRetry/time.Millisecond))) * time.Millisecond
}

// run connects until the client closes. Its goroutine reads from the connection.
func (c *Client) run() {
	defer close(c.gone)
	for failures := 0; ; failures++ {
		c.enter(State{Phase: Connecting})
		l, err := c.dial()
		if err == nil {
			began := time.Now()
			c.connected(l)
			err = l.read()
			c.disconnected(l)
			if time.Since(began) >= steady {
				failures = 0
			}
		}
		if c.life.Err() != nil {
			return
		}
		if final := endsClient(err); final != nil {
			c.shut(final)
			return
		}
		wait := c.between(err, failures)
		c.failed(err)
		c.enter(State{Phase: Waiting, RetryAt: time.Now().Add(wait), Err: err})
		select {
		case <-time.After(wait):
		case <-c.life.Done():
			return
		}
	}
}

// failed notes why there is no connection.
func (c *Client) failed(err error) {
	c.mu.Lock()
	c.failure = err
	c.mu.Unlock()
}

// timeout returns the error of what could not be done in time, with the reason that there is no connection. The caller holds the lock.
func (c *Client) timeout(what string) error {
	e := &Error{Code: "timeout", Message: what, Retryable: true, cause: c.failure}
	switch {
	case c.link != nil:
		e.cause = nil
	case c.failure != nil:
		e.Message += ". There is no connection: " + c.failure.Error()
	default:
		e.Message += ". There is no connection yet: an attempt to connect to " + c.where() + " takes longer"
	}
	return e
}

// where returns the address of the server, without what may be secret.
func (c *Client) where() string {
	u, err := url.Parse(c.url)
	if err != nil {
		return "the server"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// enter changes the state, unless the client has closed.
func (c *Client) enter(s State) {
	c.mu.Lock()
	defer c.unlock()
	if !c.closed {
		c.setState(s)
	}
}

// endsClient returns the error with which the client closes, if err is final.
func endsClient(err error) error {
	var final *finalError
	if errors.As(err, &final) {
		return final.err
	}
	var closed *websocket.CloseError
	if errors.As(err, &closed) && closed.Code == 4403 {
		return local("forbidden", "the token or API key was revoked: %s", closed.Text)
	}
	return nil
}

// pauseAfter returns how long to wait after a connection or an attempt has ended.
func pauseAfter(err error, failures int) time.Duration {
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		switch closed.Code {
		case 1001:
			if _, ms, ok := strings.Cut(closed.Text, "retry_after_ms="); ok {
				if n, err := strconv.ParseFloat(ms, 64); err == nil || errors.Is(err, strconv.ErrRange) {
					return milliseconds(n)
				}
			}
			return rand.N(2 * time.Second)
		case 4429:
			return 5*time.Second + pause(failures)
		}
	}
	return pause(failures)
}

// token asks the program for a token, and waits no longer than ctx and an attempt last.
func (c *Client) token(ctx context.Context) (string, error) {
	if c.opts.Token == nil {
		return c.opts.APIKey, nil
	}
	c.mu.Lock()
	refused := c.refused
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	answer := make(chan func() (string, error), 1)
	go func() {
		token, err := c.opts.Token(ctx, refused)
		answer <- func() (string, error) { return token, err }
	}()
	var token string
	var err error
	select {
	case a := <-answer:
		token, err = a()
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("tidewire: no token: %w", err)
	}
	if token == "" {
		return "", errors.New("tidewire: no token: Options.Token has returned an empty text without an error")
	}
	return token, nil
}

func (c *Client) setRefused(refused bool) {
	c.mu.Lock()
	c.refused = refused
	c.mu.Unlock()
}

// buffers are for all clients: one that writes nothing has none.
var buffers sync.Pool

// dial makes one attempt to connect.
func (c *Client) dial() (*link, error) {
	ctx, cancel := context.WithTimeout(c.life, c.within)
	defer cancel()
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, values := range c.opts.Header {
		header[name] = values
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	l := &link{c: c, cbor: c.opts.Encoding == CBOR, wake: make(chan struct{}, 1), over: make(chan struct{}), left: map[string]int{}}
	protocol := "tidewire.v1"
	if l.cbor {
		protocol = "tidewire.v1.cbor"
	}
	dialer := websocket.Dialer{
		NetDialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := c.opts.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			l.net = &corked{Conn: conn}
			l.net.heard()
			return l.net, nil
		},
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.opts.TLS, HandshakeTimeout: dialTimeout, Subprotocols: []string{protocol},
		ReadBufferSize: 32 << 10, WriteBufferSize: 32 << 10, WriteBufferPool: &buffers,
	}
	ws, response, err := dialer.DialContext(ctx, c.url, header)
	if err != nil {
		return nil, c.handshakeError(response, err)
	}
	l.ws = ws
	ws.SetReadLimit(helloBytes)
	stop := context.AfterFunc(ctx, func() { ws.Close() })
	err = l.hello()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		ws.Close()
		return nil, err
	}
	c.setRefused(false)
	ws.SetReadLimit(c.maxFrame(l.limits))
	return l, nil
}

const (
	helloBytes = 1 << 20  // hello has at most
	frameBytes = 32 << 20 // what a message of the server may have beside payloads: a page of events has their tags, too
	// A message of a stream was sent as one that the server takes. Characters that JSON has to escape have up to 6 bytes on the way back.
	frameFactor = 8
)

// maxFrame returns how large a message of the server may be.
func (c *Client) maxFrame(l limits) int64 {
	if c.opts.MaxFrame > 0 {
		return int64(c.opts.MaxFrame)
	}
	message := l.MessageBytes
	if message <= 0 || message > 1<<30 {
		message = 1 << 20
	}
	return frameBytes + frameFactor*int64(message)
}

// handshakeError says why the server has refused the handshake.
func (c *Client) handshakeError(response *http.Response, err error) error {
	if response == nil || response.Body == nil {
		return fmt.Errorf("tidewire: connect to %s: %w", c.where(), err)
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
	response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		c.setRefused(true)
	}
	return fmt.Errorf("tidewire: connect to %s: the server answers %s: %s", c.where(), response.Status, strings.TrimSpace(string(text)))
}

// connected makes l the connection of the client: everything begins on it.
func (c *Client) connected(l *link) {
	c.mu.Lock()
	defer c.unlock()
	c.limits = l.limits
	c.link = l
	if c.closed {
		c.after = append(c.after, func() { l.close(1000) })
		return
	}
	c.failure = nil
	c.setState(State{Phase: Connected})
	again := c.ready
	c.ready = nil
	for _, s := range c.sources {
		s.attach(l)
	}
	c.ready = append(c.ready, again...) // a room is joined before the chats that wait go to it
	l.start()
}

// disconnected takes back what was sent on l and has no answer, in the order of the calls.
func (c *Client) disconnected(l *link) {
	l.close(0)
	<-l.over
	c.mu.Lock()
	defer c.unlock()
	if c.link != l {
		return
	}
	c.link = nil
	if c.life.Err() != nil {
		return
	}
	c.takeBack(l)
	for _, s := range c.sources {
		s.detach()
	}
}
