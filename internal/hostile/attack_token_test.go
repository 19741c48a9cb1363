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
	body, signature, _ := strings.Cut(rest, ".")
	switch a.pick(20) {
	case 0:
		return rand.Text()
	case 1:
		return strings.Repeat(rand.Text(), 1+a.pick(300))
	case 2:
		return signed(`{"alg":"none"}`, claims(""), right)
	case 3:
		return strings.TrimSuffix(signed(`{"alg":"none"}`, claims(""), right), signature)
	case 4:
		return signed(hs256, claims(""), foreign)
	case 5:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":"tidewire","exp":%d}`, a.user, at-3600), right)
	case 6: // 8 KiB
		return signed(hs256, claims(`,"x":"`+strings.Repeat("x", 5900)+`"`), foreign)
	case 7: // 10 KiB
		return signed(hs256, claims(`,"x":"`+strings.Repeat("x", 7500)+`"`), right)
	case 8:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":["x","tidewire2"],"exp":%d}`, a.user, at+3600), right)
	case 9:
		return signed(fmt.Sprintf(`{"alg":"HS256","kid":%q}`, rand.Text()), claims(""), foreign)
	case 10:
		return signed(`{"alg":"HS256","kid":"../../etc/passwd","jku":"http://`+a.addr+`/v1/streams"}`, claims(""), foreign)
	case 11:
		return signed(`{"alg":"HS256","x":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+`}`, claims(""), foreign)
	case 12:
		return signed(`{"alg":"HS256","x":`+strings.Repeat(`{"a":`, 1000), claims(""), right)
	case 13:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":"tidewire"}`, a.user), right)
	case 14:
		return signed(hs256, fmt.Sprintf(`{"sub":%q,"aud":"tidewire","exp":%s}`, a.user, []string{"1e300", `"9999999999"`, "-1", "null", "{}"}[a.pick(5)]), right)
	case 15:
		return signed(hs256, fmt.Sprintf(`{"sub":%s,"aud":"tidewire","exp":%d}`, []string{`""`, "7", "null", `"a\u0000b"`, `"` + strings.Repeat("s", 129) + `"`}[a.pick(5)], at+3600), right)
	case 16:
		return signed(`{"alg":"HS256","ALG":"none"}`, claims(""), right)
	case 17:
		return signed(`{"alg":["HS256"],"crit":["exp"],"exp":1}`, claims(""), right)
	case 18: // claims of another
		return head + "." + base64.RawURLEncoding.EncodeToString([]byte(claims(`,"of":"good-0"`))) + "." + signature
	}
	return head + "." + body + "=." + signature
}

// tokenAttacks are those on the proof of who a client is. They are for closed mode alone.
var tokenAttacks = []attack{
	{"never-authenticate", lasting, func(a *attacker) {
		a.standing = tokenless
		a.side(5, func(way int) {
			for a.Err() == nil {
				for range 4 * a.scale {
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
		a.side(6, func(way int) {
			for a.Err() == nil {
				switch way {
				case 0, 1:
					a.dial([]string{"/ws", "/ws/chat", "/ws/ingest", "/ws/lanes"}[a.pick(4)])
				case 2, 3:
					a.denied("GET", []string{"/v1/streams", "/metrics", "/v1/streams/good-0/messages", "/v1/events"}[a.pick(4)], "")
				default:
					a.tryTokens()
				}
			}
		})
	}},
	{"renewals", lasting, func(a *attacker) {
		a.standing = entitled
		a.side(3, func(way int) {
			for a.Err() == nil {
				requests := make([]string, 1000)
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
				h := a.converse([]string{"/ws", "/ws/chat"}[a.pick(2)], requests...)
				for id, m := range h.answers {
					if way == 2 && m.Type == "ok" {
						a.wrong("taken", "%.300s was answered %+v, want invalid_token", requests[id-1], m)
					}
				}
			}
		})
	}},
	{"other-users-token", brief, func(a *attacker) {
		a.standing = entitled
		for _, other := range []string{a.w.gate.evil("evil-other"), a.w.gate.token("publisher of good-0", longLife), a.w.gate.token("preparer", longLife)} {
			for _, path := range []string{"/ws", "/ws/chat"} {
				h := a.converse(path, `{"type":"nonsense","id":1}`, fmt.Sprintf(`{"type":"auth","token":%q,"id":2}`, other), `{"type":"publish","stream":"good-0","payload":"x","id":3}`)
				if m := h.answers[2]; m.Type == "ok" {
					a.wrong("taken", "the token of another user on %s was answered %+v, want identity_mismatch", path, m)
				}
				if m := h.answers[3]; m.Type == "ok" {
					a.wrong("taken", "a publish by the right of another user's token was answered %+v", m)
				}
			}
		}
	}},
	{"other-users-name", lasting, func(a *attacker) {
		a.standing = entitled
		for a.Err() == nil {
			for _, name := range []string{"talker 0 in good", "evil-0", "preparer", "EVIL", a.user + " "} {
				for _, path := range []string{"/ws", "/ws/chat"} {
					h := a.converse(path, fmt.Sprintf(`{"type":"join","room":"evil","user":%q,"presence":true,"id":1}`, name),
						`{"type":"join","room":"evil","id":2}`, fmt.Sprintf(`{"type":"chat","room":"evil","user":%q,"text":"x","id":3}`, name))
					for _, id := range []int{1, 3} {
						if m := h.answers[id]; m.Type == "ok" {
							a.wrong("taken", "request %d as the user %q was answered %+v, want forbidden", id, name, m)
						}
					}
				}
			}
			a.pause(10 * time.Millisecond)
		}
	}},
}

// linger opens a WebSocket, and does one of several things without a token.
func (a *attacker) linger(way int) {
	c := a.silent([]string{"/ws", "/ws/chat"}[a.pick(2)])
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

// tryTokens tries some wrong tokens on one connection, and then to do something.
func (a *attacker) tryTokens() {
	p := a.begin(a.connect(evilDialer()), "/ws")
	if p == nil {
		return
	}
	defer p.Close()
	requests := []string{
		fmt.Sprintf(`{"type":"auth","token":%q,"id":1}`, a.wrongToken()), fmt.Sprintf(`{"type":"auth","token":%q,"id":2}`, a.wrongToken()),
		`{"type":"subscribe","stream":"good-0","from":"start","id":3}`, `{"type":"publish","stream":"good-0","payload":"x","id":4}`,
	}
	a.listen(p, func(h heard) bool { return len(h.answers) == len(requests) }, requests...)
}
