package wsproxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/websocket"
)

// origin is a server that keeps what it gets, and answers each message with ok and its id.
type origin struct {
	mu  sync.Mutex
	got []string
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		io.Copy(w, r.Body)
		return
	}
	conn, err := websocket.Upgrade(w, r, websocket.Config{})
	if err != nil {
		return
	}
	defer conn.Abort()
	for {
		messages, err := conn.Read()
		for _, m := range messages {
			o.mu.Lock()
			o.got = append(o.got, string(m.Payload))
			o.mu.Unlock()
			answer := fmt.Appendf(nil, `{"type":"ok","id":%d}`, int(read(m.Op, m.Payload).id.(float64)))
			if m.Op == websocket.OpBinary {
				answer, _ = cbor.Marshal(map[string]any{"type": "ok", "id": read(m.Op, m.Payload).id})
			}
			conn.Queue(m.Op, answer)
		}
		conn.Flush()
		if err != nil {
			return
		}
	}
}

// saw reports how many messages of a type have come.
func (o *origin) saw(kind string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, text := range o.got {
		if strings.Contains(text, kind) {
			n++
		}
	}
	return n
}

// newProxy returns a proxy with a server.
func newProxy(t *testing.T) (*Proxy, *origin) {
	t.Helper()
	o := new(origin)
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	p, err := New("127.0.0.1:0", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, o
}

func dial(t *testing.T, p *Proxy) *websocket.Conn {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), "ws://"+p.Addr()+"/", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Abort)
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn
}

// exchange sends messages, and returns the answers until the connection ends or wanted answers have come.
func exchange(conn *websocket.Conn, wanted int, messages ...string) (answers []string, err error) {
	for _, m := range messages {
		conn.Queue(websocket.OpText, []byte(m))
	}
	conn.Flush()
	for len(answers) < wanted && err == nil {
		var got []websocket.Message
		got, err = conn.Read()
		for _, m := range got {
			answers = append(answers, string(m.Payload))
		}
	}
	return answers, err
}

const (
	first  = `{"type":"publish","id":1}`
	second = `{"type":"publish","id":2}`
	third  = `{"type":"credit","id":3}`
	ok1    = `{"type":"ok","id":1}`
	ok2    = `{"type":"ok","id":2}`
	ok3    = `{"type":"ok","id":3}`
)

// TestProxy_Rules: each rule hits the message that it names, and no other.
func TestProxy_Rules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		rule    Rule
		answers []string // that come before the end, or all three
		ends    bool
		arrives int // messages publish at the server; 1 or more may have come where it is -1
	}{
		{"another type", Rule{To: "server", Type: "enqueue", Do: CutBefore}, []string{ok1, ok2, ok3}, false, 2},
		{"cut before the second publish", Rule{To: "server", Type: "publish", Skip: 1, Do: CutBefore}, nil, true, -1},
		{"cut after the first publish", Rule{To: "server", Type: "publish", Do: CutAfter}, nil, true, 1},
		{"cut before the second answer", Rule{To: "client", Type: "ok", Skip: 1, Do: CutBefore}, nil, true, 2},
		{"cut after the answer to credit", Rule{To: "client", Answers: "credit", Do: CutAfter}, []string{ok1, ok2, ok3}, true, 2},
		{"drop a request", Rule{To: "server", Type: "publish", Do: Drop}, []string{ok2, ok3}, false, 1},
		{"drop answers", Rule{To: "client", Answers: "publish", Times: -1, Do: Drop}, []string{ok3}, false, 2},
		{"delay", Rule{To: "client", Answers: "publish", Do: Delay, DelayMS: 20}, []string{ok1, ok2, ok3}, false, 2},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			p, o := newProxy(t)
			if err := p.Add(c.rule); err != nil {
				t.Fatal(err)
			}
			conn := dial(t, p)
			wanted := len(c.answers)
			if c.ends {
				wanted = 4
			}
			answers, err := exchange(conn, wanted, first, second, third)
			if (err != nil) != c.ends || c.answers != nil && fmt.Sprint(answers) != fmt.Sprint(c.answers) || len(answers) > 3 {
				t.Errorf("answers %v, then %v; want %v", answers, err, c.answers)
			}
			testkit.Eventually(t, "the messages arrive", func() bool { return o.saw("publish") >= c.arrives })
			if n := o.saw("publish"); c.arrives >= 0 && n != c.arrives {
				t.Errorf("the server got %d, want %d", n, c.arrives)
			}
			if s := p.State(); s.Accepted != 1 || s.Waiting != 0 && c.rule.Times != -1 && c.name != "another type" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestProxy_Stall: what is stalled arrives after Clear, in its order, and the other direction goes on.
func TestProxy_Stall(t *testing.T) {
	t.Parallel()
	p, o := newProxy(t)
	if err := p.Add(Rule{To: "client", Answers: "publish", Skip: 1, Do: Stall}); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, p)
	if answers, err := exchange(conn, 1, first, second, third); err != nil || answers[0] != ok1 {
		t.Fatal(answers, err)
	}
	testkit.Eventually(t, "the other direction goes on", func() bool { return o.saw("credit") > 0 })
	p.Clear()
	if answers, err := exchange(conn, 2); err != nil || fmt.Sprint(answers) != fmt.Sprint([]string{ok2, ok3}) {
		t.Error(answers, err)
	}
}

// TestProxy_Everything: connections that are cut, refused or not WebSocket, large messages, CBOR, and another target.
func TestProxy_Everything(t *testing.T) {
	t.Parallel()
	p, o := newProxy(t)
	large := `{"type":"publish","id":1,"payload":"` + strings.Repeat("x", 700_000) + `"}`
	conn := dial(t, p)
	if answers, err := exchange(conn, 1, large); err != nil || answers[0] != ok1 || o.saw(large) != 1 {
		t.Error(answers, err)
	}
	if err := p.Add(Rule{To: "client", Answers: "commit", Do: CutAfter}); err != nil {
		t.Fatal(err)
	}
	binary, _ := cbor.Marshal(map[string]any{"type": "commit", "id": 7})
	conn.Queue(websocket.OpBinary, binary)
	if answers, err := exchange(conn, 2); err == nil || len(answers) != 1 || read(websocket.OpBinary, []byte(answers[0])).id != 7.0 {
		t.Errorf("%q, %v", answers, err)
	}
	conn = dial(t, p)
	if n := p.Cut(); n < 1 {
		t.Error("nothing was cut")
	}
	if _, err := exchange(conn, 1); err == nil {
		t.Error("the connection goes on after Cut")
	}
	answer, err := http.Post("http://"+p.Addr()+"/", "text/plain", bytes.NewReader([]byte("as it is")))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if string(body) != "as it is" {
		t.Errorf("got %q", body)
	}
	p.Refuse(true)
	if _, err := websocket.Dial(t.Context(), "ws://"+p.Addr()+"/", websocket.Config{}); err == nil {
		t.Error("it was not refused")
	}
	p.Clear()
	second, other := newProxy(t)
	p.SetTarget(second.Addr())
	if _, err := exchange(dial(t, p), 1, third); err != nil || other.saw("credit") != 1 {
		t.Error("the new target got nothing", err)
	}
}

// TestControl: what another program can ask for over HTTP.
func TestControl(t *testing.T) {
	t.Parallel()
	p, _ := newProxy(t)
	control := httptest.NewServer(p.Control())
	t.Cleanup(control.Close)
	conn := dial(t, p)
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/rules", `{"to":"client","answers":"publish","do":"drop"}`, 204, ""},
		{"GET", "/state", "", 200, `"waiting":1`},
		{"POST", "/rules", `{"to":"nowhere","do":"drop"}`, 400, `to: "nowhere", want "server" or "client"`},
		{"POST", "/rules", `{"to":"client","do":"burn"}`, 400, `do: "burn"`},
		{"POST", "/rules", `{"to":"client","do":"delay"}`, 400, "delay_ms"},
		{"POST", "/rules", `{"to":"client","do":"drop","skip":-1}`, 400, "skip"},
		{"POST", "/rules", `{"to":"client","do":"drop","times":-2}`, 400, "times"},
		{"POST", "/rules", `{"to":"server","do":"drop","answers":"publish"}`, 400, "answers"},
		{"POST", "/rules", `{"to":"client","do":"drop","answers":"publsh"}`, 400, `answers: "publsh", want one of `},
		{"POST", "/rules", `{"to":"client","do":"drop","type":"publish"}`, 400, `type: "publish", want one of `},
		{"POST", "/rules", `{"to":"client","do":"drop","typ":"ok"}`, 400, "unknown field"},
		{"POST", "/rules", ``, 400, "EOF"},
		{"DELETE", "/rules", "", 204, ""},
		{"GET", "/state", "", 200, `{"connections":1,"accepted":1,"waiting":0}`},
		{"PUT", "/target", "", 400, "address"},
		{"PUT", "/target?address=foo", "", 400, "address"},
		{"PUT", "/target?address=127.0.0.1:1", "", 204, ""},
		{"POST", "/cut", "", 200, `{"cut":1}`},
		{"POST", "/refuse", "", 204, ""},
		{"POST", "/refuse?on=false", "", 204, ""},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), c.method, control.URL+c.path, strings.NewReader(c.body))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != c.status || !strings.Contains(string(text), c.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", c.method, c.path, c.body, answer.StatusCode, text, c.status, c.want)
		}
	}
	if _, err := exchange(conn, 1); err == nil {
		t.Error("the connection goes on after /cut")
	}
	if _, err := websocket.Dial(t.Context(), "ws://"+p.Addr()+"/", websocket.Config{}); err == nil {
		t.Error("connected to a target that is not there")
	}
}
