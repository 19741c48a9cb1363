package websocket

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Dial connects to a ws or wss URL. ctx bounds connecting and the handshake,
// not the lifetime of the Conn.
func Dial(ctx context.Context, rawURL string, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("websocket: dial: %w", err)
	}
	socket, err := dialSocket(ctx, u, cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("websocket: dial %s: %w", u.Host, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.SetDeadline(time.Unix(1, 0)) })
	agreed, leftover, err := clientHandshake(socket, u, cfg)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = socket.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("websocket: dial %s: %w", u.Host, err)
	}
	c := newConn(socket, cfg, true, leftover)
	c.subprotocol = agreed.protocol
	if agreed.deflate {
		c.agree(fullWindow) // the window that the server chose limits the server alone
	}
	return c, nil
}

func dialSocket(ctx context.Context, u *url.URL, config *tls.Config) (net.Conn, error) {
	var d net.Dialer
	switch u.Scheme {
	case "ws":
		return d.DialContext(ctx, "tcp", hostPort(u, "80"))
	case "wss":
		socket, err := d.DialContext(ctx, "tcp", hostPort(u, "443"))
		if err != nil {
			return nil, err
		}
		return handshakeTLS(ctx, socket, u.Hostname(), config)
	}
	return nil, fmt.Errorf("scheme %q is neither ws nor wss", u.Scheme)
}

// handshakeTLS does the TLS handshake of a client, and closes the socket if it fails.
func handshakeTLS(ctx context.Context, socket net.Conn, host string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		config = &tls.Config{}
	}
	config = withHTTP1(config)
	config.ServerName = cmp.Or(config.ServerName, host)
	over := tls.Client(newSecureSocket(socket, false), config)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return over, nil
}

func hostPort(u *url.URL, port string) string {
	if p := u.Port(); p != "" {
		port = p
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// ClientHandshake does the WebSocket handshake on a new connection to u's host,
// for a caller that reads and writes frames itself with this package's codec.
// It blocks, at most until the deadline set on conn. leftover are bytes that
// the server sent right after its answer.
func ClientHandshake(conn net.Conn, u *url.URL) (leftover []byte, err error) {
	_, leftover, err = clientHandshake(conn, u, Config{})
	return leftover, err
}

// ClientHandshakeFor is ClientHandshake for a subprotocol, which the server has to choose.
func ClientHandshakeFor(conn net.Conn, u *url.URL, protocol string) (leftover []byte, err error) {
	a, leftover, err := clientHandshake(conn, u, Config{Subprotocols: []string{protocol}})
	if err == nil && a.protocol != protocol {
		err = fmt.Errorf("the server does not have the subprotocol %q", protocol)
	}
	return leftover, err
}

// ClientHandshakeCompressed is ClientHandshake with an offer of permessage-deflate without context takeover. It reports whether the
// server has accepted that: then messages with RSV1 are compressed, each alone.
func ClientHandshakeCompressed(conn net.Conn, u *url.URL) (compressed bool, leftover []byte, err error) {
	a, leftover, err := clientHandshake(conn, u, Config{Compression: &Compression{}})
	return a.deflate, leftover, err
}

// agreed is what a server has chosen of the client's offers.
type agreed struct {
	protocol string // "" if none
	deflate  bool
}

func clientHandshake(conn net.Conn, u *url.URL, cfg Config) (a agreed, leftover []byte, err error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: cfg.Header.Clone()}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Sec-WebSocket-Version", "13")
	r.Header.Set("Sec-WebSocket-Key", key)
	for _, p := range cfg.Subprotocols {
		r.Header.Add("Sec-WebSocket-Protocol", p)
	}
	if cfg.Compression != nil {
		r.Header.Set("Sec-WebSocket-Extensions", deflateOffer)
	}
	if err := r.Write(conn); err != nil {
		return agreed{}, nil, fmt.Errorf("send handshake: %w", err)
	}
	in := bufio.NewReader(conn)
	answer, err := http.ReadResponse(in, r)
	if err != nil {
		return agreed{}, nil, fmt.Errorf("read handshake: %w", err)
	}
	a.protocol = answer.Header.Get("Sec-WebSocket-Protocol")
	a.deflate, err = chosenDeflate(answer.Header, cfg.Compression != nil)
	switch {
	case answer.StatusCode != http.StatusSwitchingProtocols:
		reason, _, _ := bufio.NewReader(io.LimitReader(answer.Body, 200)).ReadLine() // perhaps there is none
		return agreed{}, nil, &HandshakeError{answer.StatusCode, string(reason)}
	case !hasToken(answer.Header, "Upgrade", "websocket") || !hasToken(answer.Header, "Connection", "upgrade"):
		return agreed{}, nil, fmt.Errorf("server did not switch to websocket")
	case answer.Header.Get("Sec-WebSocket-Accept") != acceptKey(key):
		return agreed{}, nil, fmt.Errorf("server did not prove that it read the key")
	case err != nil:
		return agreed{}, nil, err
	case a.protocol != "" && !slices.Contains(cfg.Subprotocols, a.protocol):
		return agreed{}, nil, fmt.Errorf("server chose subprotocol %q that was not offered", a.protocol)
	}
	leftover, err = in.Peek(in.Buffered())
	return a, leftover, err
}

// chosenDeflate reports whether the server has accepted compression.
func chosenDeflate(h http.Header, offered bool) (bool, error) {
	if !offered && h.Get("Sec-WebSocket-Extensions") != "" {
		return false, fmt.Errorf("server chose an extension that was not offered")
	}
	return acceptDeflate(h.Values("Sec-WebSocket-Extensions"))
}
