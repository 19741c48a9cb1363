package hostile

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// signed returns a token of two texts that need not be JSON.
func signed(header, claims string, secret []byte) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// wrongToken returns a token that a server in closed mode must not accept. Those signed by the right key are wrong in another way.
func (a *attacker) wrongToken() string {
	const hs256 = `{"alg":"HS256"}`
	right, foreign := a.w.gate.secret, []byte(rand.Text()+rand.Text())
	at := time.Now().Unix()
	claims := func(more string) string {
		return fmt.Sprintf(`{"sub":%q,"aud":"tidewire","role":"preparer"%s,"exp":%d}`, a.user, more, at+3600)
	}
	good := signed(hs256, claims(""), right)
	head, rest, _ := strings.Cut(good, ".")
	_, signature, _ := strings.Cut(rest, ".")
	switch a.pick(9) {
	case 0:
		return strings.Repeat(rand.Text(), 1+a.pick(300))
	case 1:
		return strings.TrimSuffix(signed(`{"alg":"none"}`, claims(""), right), signature)
	case 2:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":"tidewire","exp":%d}`, a.user, at-3600), right)
	case 3: // 10 KiB
		return signed(hs256, claims(`,"x":"`+strings.Repeat("x", 7500)+`"`), right)
	case 4:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":["x","tidewire2"],"exp":%d}`, a.user, at+3600), right)
	case 5:
		return signed(`{"alg":"HS256","x":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+`}`, claims(""), foreign)
	case 6:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":"tidewire"}`, a.user), right)
	case 7: // claims of another
		return head + "." + base64.RawURLEncoding.EncodeToString([]byte(claims(`,"of":"good-0"`))) + "." + signature
	}
	return signed(hs256, claims(""), foreign)
}

// tokenAttacks are those on the proof of who a client is. They are for closed mode alone.
var tokenAttacks = []attack{
	{"never-authenticate", lasting, func(a *attacker) {
		a.standing = tokenless
		side(5, func(way int) {
			for a.again() {
				for range a.many(4) {
					a.linger(way)
				}
				if !a.pause(time.Second) {
					return
				}
			}
		})
	}},
	{"wrong-tokens", lasting, func(a *attacker) {
		a.standing = mistaken
		side(6, func(way int) {
			for a.again() {
				switch way {
				case 0, 1:
					a.dial(paths[a.pick(4)])
				case 2, 3:
					a.denied("GET", []string{"/v1/streams", "/metrics", "/v1/streams/good-0/messages", "/v1/events"}[a.pick(4)], "")
				default:
					token := fmt.Sprintf(`{"type":"auth","token":%q,"id":`, a.wrongToken())
					a.converse("/ws", token+`1}`, token+`2}`, `{"type":"subscribe","stream":"good-0","from":"start","id":3}`, `{"type":"publish","stream":"good-0","payload":"x","id":4}`)
				}
			}
		})
	}},
	{"renewals", lasting, func(a *attacker) {
		a.standing = entitled
		side(3, func(way int) {
			for a.again() {
				requests := make([]string, a.many(1000))
				for i := range requests {
					token := a.token
					switch way {
					case 1: // never the same: each has to be verified
						token = a.w.gate.evil(a.user)
					case 2:
						token = a.wrongToken()
					}
					requests[i] = fmt.Sprintf(`{"type":"auth","token":%q,"id":%d}`, token, i+1)
				}
				h := a.converse(paths[a.pick(2)], requests...)
				for id, m := range h.answers {
					if way == 2 && m.Type == "ok" {
						a.wrong("taken", "%.300s was answered %+v, want invalid_token", requests[id-1], m)
					}
				}
			}
		})
	}},
}

// linger opens a WebSocket, and does one of several things without a token.
func (a *attacker) linger(way int) {
	c := a.silent(paths[a.pick(2)])
	if c == nil {
		return
	}
	a.calls.Go(func() {
		defer c.Close()
		switch way {
		case 0: // silence
			a.untilClosed(c)
		case 1: // a byte every now and then
			for _, b := range websocket.AppendMaskedFrame(nil, websocket.OpText, [4]byte{}, []byte(`{"type":"ping","ts":1}`)) {
				if _, err := c.Write([]byte{b}); err != nil || !a.pause(time.Second) {
					return
				}
			}
		case 2: // many messages
			for n := 0; n < 10_000 && text(c, `{"type":"subscribe","stream":"good-0","from":"start","id":%d}`, n); n++ {
			}
		case 3: // a large first message
			c.SetWriteDeadline(time.Now().Add(time.Second))
			text(c, `{"type":"auth","token":"%s","id":1}`, strings.Repeat("x", 1<<20-100))
			a.untilClosed(c)
		default: // pings alone
			for frame(c, websocket.OpPing, []byte("x")) && a.pause(100*time.Millisecond) {
			}
		}
	})
}

// untilClosed waits until the server has ended the connection, or the attack is over.
func (a *attacker) untilClosed(c *net.TCPConn) {
	for buf := make([]byte, 4096); ; {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}
