package gateway_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/websocket"
)

// untilClose reads frames until a Close, and returns its code and what came before it. A connection that ends without one has the code 0.
func untilClose(t *testing.T, conn net.Conn) (websocket.StatusCode, []byte) {
	t.Helper()
	var got []byte
	conn.SetReadDeadline(time.Now().Add(patience))
	for buf := make([]byte, 64<<10); ; {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		for i := max(0, len(got)-n-3); i+3 < len(got); i++ {
			code := websocket.StatusCode(got[i+2])<<8 | websocket.StatusCode(got[i+3])
			if got[i] == 0x88 && got[i+1] <= websocket.MaxControl && code >= 1000 && code < 5000 {
				return code, got[:i]
			}
		}
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Errorf("the server does not end the connection; it sent %.300q", got)
			return 0, got
		}
		if err != nil {
			return 0, got
		}
	}
}

// TestAttack_BombsBeforeTheToken: without a token, large messages, floods of frames and nested or long JSON end the connection and have no effect.
func TestAttack_BombsBeforeTheToken(t *testing.T) {
	t.Parallel()
	events := newNamedEvents()
	c := serveClosed(t, func(cfg *gateway.Config) {
		cfg.Engine.Events = events
		cfg.Auth.Timeout = time.Second // which ends those that send nothing but Pings
	})
	frame := func(op websocket.Opcode, text string) []byte {
		return websocket.AppendMaskedFrame(nil, op, [4]byte{1, 2, 3, 4}, []byte(text))
	}
	open := frame(websocket.OpText, "")
	open[0] &^= 0x80 // not the last
	more := frame(websocket.OpContinuation, "")
	more[0] &^= 0x80
	packed := frame(websocket.OpText, `{"id":1,"type":"publish","stream":"orders","payload":"x"}`)
	packed[0] |= 0x40 // RSV1, as if compression had been agreed on
	const million = 1_000_000
	for _, d := range []struct {
		name   string
		first  []byte
		repeat []byte
		times  int
	}{
		{"1 MiB", nil, frame(websocket.OpText, `{"id":1,"type":"publish","stream":"orders","payload":"`+strings.Repeat("x", 1<<20-100)+`"}`), 1},
		{"empty fragments", open, bytes.Repeat(more, 1000), million / 1000},
		{"pings", nil, bytes.Repeat(frame(websocket.OpPing, ""), 1000), million / 1000},
		{"deep", nil, frame(websocket.OpText, `{"id":1,"type":"append","events":`+strings.Repeat("[", 100_000)), 1},
		{"deep and small", nil, frame(websocket.OpText, `{"id":1,"type":"append","events":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`}`), 5},
		{"many items", nil, frame(websocket.OpText, `{"id":1,"type":"query","query":{"items":[`+strings.Repeat("{},", 999)+`{}]}}`), 5},
		{"many messages", nil, frame(websocket.OpText, `{"id":1,"type":"publish","stream":"orders","messages":[`+strings.Repeat(`{"payload":""},`, 999)+`{"payload":""}]}`), 5},
		{"RSV1", nil, packed, 1},
	} {
		for _, path := range []string{"/ws", "/ws/chat"} {
			t.Run(d.name+path, func(t *testing.T) {
				conn := raw(t, c.addr, path)
				written := make(chan struct{})
				go func() {
					defer close(written)
					conn.Write(d.first)
					for range d.times {
						if _, err := conn.Write(d.repeat); err != nil {
							return // closed
						}
					}
				}()
				_, got := untilClose(t, conn)
				if bytes.Contains(got, []byte(`"ok"`)) {
					t.Errorf("got %.300q", got)
				}
				conn.Close()
				<-written
			})
		}
	}
	if messages, _ := c.streams.stored("orders"); messages > 0 || len(events.noted()) > 0 {
		t.Errorf("%d messages are stored, and the stores %q were asked", messages, events.noted())
	}
	for _, path := range []string{"streams/orders/messages", "queues/jobs/messages", "events", "events/query"} {
		for _, body := range []string{strings.Repeat("x", 1<<20), strings.Repeat("[", 100_000), `{"messages":[` + strings.Repeat(`{"payload":""},`, 999) + `{"payload":""}]}`} {
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+c.addr+"/v1/"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				continue // the server did not wait for the body
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
		}
	}
	c.as("/ws", tokenOf(t, "ann", time.Hour, "publish stream:orders")).ask(`{"id":1,"type":"publish","stream":"orders","payload":"x"}`, `{"type":"ok","id":1,"position":1}`)
}

// TestAttack_KeysOfTheToken: no header of a token has the server ask an address or read a file, on every door, and a key in it signs nothing.
func TestAttack_KeysOfTheToken(t *testing.T) {
	t.Parallel()
	var asked, issued atomic.Int64
	listener := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(listener.Close)
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		issued.Add(1)
		io.WriteString(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)
	}))
	t.Cleanup(issuer.Close)
	set, err := auth.NewKeySet(issuer.URL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := auth.NewPolicy(auth.Config{Token: auth.TokenConfig{Audience: "tidewire", Issuer: "i"}, KeySet: set})
	if err != nil {
		t.Fatal(err)
	}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Auth.Policy = policy })
	_, rest, _ := strings.Cut(tokenOf(t, "ann", time.Hour), ".")
	at := listener.URL + "/jwks.json"
	secret := map[string]string{"kty": "oct", "k": base64.RawURLEncoding.EncodeToString(tokenSecret)}
	for _, fields := range []map[string]any{
		{"jku": at}, {"jku": at, "kid": "a"}, {"x5u": at}, {"x5u": at, "kid": "a"}, {"jwk": secret}, {"jwk": secret, "kid": "a"}, {"x5c": []string{at}}, {"kid": at}, {"kid": "../../etc/passwd"},
		{"kid": "/dev/zero"}, {"kid": "file://" + at}, {"kid": "' OR 1=1 --"}, {"kid": strings.Repeat("k", 5000)}, {"iss": at}, {"url": at},
	} {
		for _, alg := range []string{"HS256", "RS256", "EdDSA", "none"} {
			fields["alg"] = alg
			header, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			token := base64.RawURLEncoding.EncodeToString(header) + "." + rest
			if got := c.status("GET", "/v1/streams", "", token); !strings.HasPrefix(got, "401") {
				t.Errorf("%.100s by HTTP: %s", header, got)
			}
			for _, path := range []string{"/ws", "/ws/chat"} {
				w := &wire{Conn: dial(t, "ws://"+c.addr+path), t: t}
				if got := w.code(fmt.Sprintf(`{"id":"x","type":"auth","token":%q}`, token)); got != "errorinvalid_token" {
					t.Errorf("%.100s on %s: %s", header, path, got)
				}
				w.Abort()
			}
		}
	}
	if asked.Load() > 0 || issued.Load() > 2 { // a minute may end in between
		t.Errorf("the address in the tokens was asked %d times, want none, and the issuer %d times, want once", asked.Load(), issued.Load())
	}
}

// TestAttack_PagesWithToken: a good token does not help a page of a foreign origin or host name, on every endpoint.
func TestAttack_PagesWithToken(t *testing.T) {
	t.Parallel()
	access, err := websocket.NewAccess(websocket.AccessConfig{Origins: []string{"https://app.example.com", "https://*.example.org"}, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	c := serveClosed(t, func(cfg *gateway.Config) { cfg.Access = access })
	token := tokenOf(t, "ann", time.Hour, "read,publish stream:**", "join,chat room:**", "write ingest:*", "metrics server:*")
	status := func(path, origin, host string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+c.addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			r.Host = host
		}
		r.Header = bearer(token, "Origin", origin)
		if strings.HasPrefix(path, "/ws") {
			for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
				r.Header.Set(name, value)
			}
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/v1/streams", "/v1/streams/orders/messages", "/ws", "/ws/chat", "/ws/ingest"} {
		for _, origin := range []string{
			"null", "file://", "https://app.example.com.evil.com", "https://evilapp.example.com", "https://evilexample.org", "https://example.org.evil.com", "https://app.example.com:8443",
			"http://app.example.com", "http://[::1]", "https://" + c.addr, "http://evil.com",
		} {
			if got := status(path, origin, ""); got != http.StatusForbidden {
				t.Errorf("%s from %s: %d", path, origin, got)
			}
		}
		if got := status(path, "http://evil.com", "evil.com"); got != http.StatusForbidden && got != http.StatusMisdirectedRequest {
			t.Errorf("%s of a name that was made to resolve to this machine: %d", path, got)
		}
		want := http.StatusOK
		if strings.HasPrefix(path, "/ws") {
			want = http.StatusSwitchingProtocols
		}
		if got := status(path, "https://app.example.com", ""); got != want {
			t.Errorf("%s from an allowed origin: %d, want %d", path, got, want)
		}
	}
}
