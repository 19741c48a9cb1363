package websocket

import (
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// acceptGUID is the constant that RFC 6455 appends to the client's key.
const acceptGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// HandshakeError is the error of a handshake that the server answered with an
// HTTP error. Upgrade and Dial return it.
type HandshakeError struct {
	Status int    // HTTP status
	Reason string // one line
}

func (e *HandshakeError) Error() string {
	return fmt.Sprintf("websocket: handshake refused with %d: %s", e.Status, e.Reason)
}

// Upgrade answers the handshake of a client and takes the connection over from the HTTP server.
// It answers an invalid handshake with an HTTP error and returns the *HandshakeError; the caller
// must not write another answer. The headers set on w are sent in the answer.
//
// The Conn does not need the handler: hand it to a goroutine and return, and
// the server's request and buffers (10 KiB and more) are released. As the
// request's context ends with the handler, the goroutine needs another one.
func Upgrade(w http.ResponseWriter, r *http.Request, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return nil, err
	}
	if err := checkHandshake(r, cfg.Access); err != nil {
		h := w.Header()
		switch err.Status {
		case http.StatusMethodNotAllowed:
			h.Set("Allow", http.MethodGet)
		case http.StatusUpgradeRequired:
			h.Set("Connection", "Upgrade")
			h.Set("Upgrade", "websocket")
			h.Set("Sec-WebSocket-Version", "13")
		}
		if err == errBody {
			h.Set("Connection", "close")
		}
		http.Error(w, err.Reason, err.Status)
		return nil, err
	}
	header := w.Header().Clone()
	socket, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return nil, fmt.Errorf("websocket: take over the connection: %w", err)
	}
	leftover, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("websocket: bytes after the handshake: %w", err)
	}
	protocol := chooseSubprotocol(r.Header, cfg.Subprotocols)
	extension, window := "", 0
	if cfg.Compression != nil {
		extension, window = chooseDeflate(r.Header.Values("Sec-WebSocket-Extensions"))
	}
	if _, err := socket.Write(handshakeAnswer(header, r.Header.Get("Sec-WebSocket-Key"), protocol, extension)); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("websocket: answer the handshake: %w", err)
	}
	c := newConn(socket, cfg, false, leftover)
	c.subprotocol = protocol
	if extension != "" {
		c.agree(window)
	}
	return c, nil
}

// checkHandshake applies RFC 6455, section 4.2.1.
func checkHandshake(r *http.Request, access *Access) *HandshakeError {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return &HandshakeError{http.StatusBadRequest, "a WebSocket handshake needs HTTP/1.1"}
	case r.Method != http.MethodGet:
		return &HandshakeError{http.StatusMethodNotAllowed, "a WebSocket handshake is a GET"}
	case !hasToken(r.Header, "Upgrade", "websocket"):
		return &HandshakeError{http.StatusUpgradeRequired, "this is a WebSocket endpoint: the Upgrade header must say websocket"}
	case !hasToken(r.Header, "Connection", "upgrade"):
		return &HandshakeError{http.StatusBadRequest, "the Connection header must say Upgrade"}
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return &HandshakeError{http.StatusUpgradeRequired, "the Sec-WebSocket-Version header must be 13"}
	case len(r.Header.Values("Sec-WebSocket-Key")) != 1 || err != nil || len(key) != 16:
		return &HandshakeError{http.StatusBadRequest, "the Sec-WebSocket-Key header must be 16 bytes in base64, once"}
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return errBody
	}
	return access.check(r)
}

// errBody rejects a request with a body. Otherwise bytes that a proxy takes for
// the body would be read as frames: request smuggling.
var errBody = &HandshakeError{http.StatusBadRequest, "a WebSocket handshake has no body: send frames after the answer"}

// hasToken reports whether a header that lists tokens has this one.
func hasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(tokens(h, name), func(t string) bool { return strings.EqualFold(t, token) })
}

func tokens(h http.Header, name string) []string {
	var list []string
	for _, line := range h.Values(name) {
		for t := range strings.SplitSeq(line, ",") {
			if t = strings.TrimSpace(t); t != "" {
				list = append(list, t)
			}
		}
	}
	return list
}

// chooseSubprotocol returns the first of ours that the client offers, or "".
func chooseSubprotocol(h http.Header, ours []string) string {
	offered := tokens(h, "Sec-WebSocket-Protocol")
	for _, p := range ours {
		if slices.Contains(offered, p) {
			return p
		}
	}
	return ""
}

// handshakeAnswer is the response that switches protocols.
func handshakeAnswer(h http.Header, key, protocol, extension string) []byte {
	for _, name := range []string{"Upgrade", "Connection", "Sec-WebSocket-Accept", "Sec-WebSocket-Extensions",
		"Sec-WebSocket-Protocol", "Content-Length", "Transfer-Encoding"} {
		h.Del(name)
	}
	var b strings.Builder
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
	b.WriteString("Sec-WebSocket-Accept: " + acceptKey(key) + "\r\n")
	if protocol != "" {
		b.WriteString("Sec-WebSocket-Protocol: " + protocol + "\r\n")
	}
	if extension != "" {
		b.WriteString("Sec-WebSocket-Extensions: " + extension + "\r\n")
	}
	_ = h.Write(&b) // a strings.Builder takes everything
	b.WriteString("\r\n")
	return []byte(b.String())
}

// acceptKey proves to the client that the server understood its key.
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + acceptGUID)) // required by RFC 6455; it protects no secret
	return base64.StdEncoding.EncodeToString(sum[:])
}
