package conformance

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// patience bounds the wait for an answer.
const patience = time.Minute

// Run plays all transcripts against the server at address, which has an empty
// database and the stored room "kept".
func Run(t *testing.T, address string) {
	all, err := Transcripts()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d transcripts, %v", len(all), err)
	}
	for name, text := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Play(t, address, Parse(text))
		})
	}
}

// Play plays exchanges against a server, on one connection.
func Play(t *testing.T, address string, exchanges []Exchange) {
	t.Helper()
	c, err := websocket.Dial(t.Context(), "ws://"+address+"/ws", websocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	p := &player{T: t, address: address, conn: c}
	for _, e := range exchanges {
		if e.HTTP {
			p.http(e)
		} else {
			p.message(e)
		}
	}
}

type player struct {
	*testing.T
	address  string
	conn     *websocket.Conn
	unread   []string
	delivery string // the last one
}

// http sends a request and compares the answer.
func (p *player) http(e Exchange) {
	p.Helper()
	method, rest, _ := strings.Cut(e.Request, " ")
	path, body, _ := strings.Cut(rest, " ")
	r, err := http.NewRequestWithContext(p.Context(), method, "http://"+p.address+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.Fatal(err)
	}
	if len(e.Answers) != 1 {
		p.Fatalf("line %d: want one answer to an HTTP request", e.Line)
	}
	status, want, _ := strings.Cut(e.Answers[0], " ")
	if ok, err := Same(want, string(text)); !ok || err != nil || strconv.Itoa(answer.StatusCode) != status {
		p.Fatalf("line %d: %s\ngets %d %s\nwant %s, %v", e.Line, e.Request, answer.StatusCode, text, e.Answers[0], err)
	}
}

// message sends a message and compares the expected answers.
func (p *player) message(e Exchange) {
	p.Helper()
	request := strings.ReplaceAll(e.Request, `"delivery":"…"`, `"delivery":"`+p.delivery+`"`)
	if err := p.conn.Queue(websocket.OpText, []byte(request)); err != nil {
		p.Fatal(err)
	}
	if err := p.conn.Flush(); err != nil {
		p.Fatal(err)
	}
	wanted := slices.Clone(e.Answers)
	for range e.Answers {
		got := p.receive()
		at := slices.IndexFunc(wanted, func(want string) bool {
			ok, err := Same(want, got)
			if err != nil {
				p.Fatalf("line %d: %v", e.Line, err)
			}
			return ok
		})
		if at < 0 {
			p.Fatalf("line %d: %s\ngets %s\nwant %s", e.Line, request, got, strings.Join(wanted, "\nor   "))
		}
		wanted = slices.Delete(wanted, at, at+1)
	}
}

// receive returns the next message.
func (p *player) receive() (next string) {
	p.Helper()
	p.conn.SetReadDeadline(time.Now().Add(patience))
	for len(p.unread) == 0 {
		messages, err := p.conn.Read()
		for _, m := range messages {
			p.unread = append(p.unread, string(m.Payload))
		}
		if err != nil {
			p.Fatal(err)
		}
	}
	next, p.unread = p.unread[0], p.unread[1:]
	var m struct {
		Delivery string `json:"delivery"`
	}
	if json.Unmarshal([]byte(next), &m); m.Delivery != "" {
		p.delivery = m.Delivery
	}
	return next
}
