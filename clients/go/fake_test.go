package tidewire

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// patience bounds everything that a test waits for.
const patience = 30 * time.Second

// frame is a message of the client, with all its fields.
type frame map[string]any

func (f frame) number(name string) int64 {
	n, _ := f[name].(float64)
	return int64(n)
}

// fake is a server that does what a test says. Each connection is one peer.
type fake struct {
	*httptest.Server
	peers chan *peer
	hello atomic.Value // what each connection begins with
}

// peer is the server's side of a connection.
type peer struct {
	t      *testing.T
	f      *fake
	ws     *websocket.Conn
	header http.Header
	mu     sync.Mutex
	seen   sync.Map // of random tests: what the client has sent
}

const fakeHello = `{"type":"hello","protocol":"tidewire.v1","now_ms":1,"authenticated":true,"features":["streams"],"limits":{"message_bytes":1048576,"messages":1000}}`

func newFake(t *testing.T) *fake {
	f := &fake{peers: make(chan *peer, 16)}
	f.hello.Store(fakeHello)
	upgrader := websocket.Upgrader{Subprotocols: []string{"tidewire.v1"}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer bad" {
			http.Error(w, "the token is not valid", http.StatusUnauthorized)
			return
		}
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		p := &peer{t: t, f: f, ws: ws, header: r.Header}
		p.send(f.hello.Load().(string))
		f.peers <- p
	}))
	t.Cleanup(f.Server.Close)
	return f
}

// open returns a client of the server, which closes with the test.
func (f *fake) open(t *testing.T, o Options) *Client {
	t.Helper()
	o.Encoding = JSON
	c, err := Open("ws"+strings.TrimPrefix(f.URL, "http")+"/ws", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Shutdown(ctx)
	})
	return c
}

// accept waits for the next connection.
func (f *fake) accept(t *testing.T) *peer {
	t.Helper()
	select {
	case p := <-f.peers:
		t.Cleanup(func() { p.ws.Close() })
		return p
	case <-time.After(patience):
		t.Fatal("the client does not connect")
		return nil
	}
}

func (p *peer) send(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ws.WriteMessage(websocket.TextMessage, []byte(text))
}

// answer sends the fields as the answer to a request.
func (p *peer) answer(f frame, kind string, more frame) {
	a := frame{"type": kind, "id": f["id"]}
	for name, value := range more {
		a[name] = value
	}
	text, _ := json.Marshal(a)
	p.send(string(text))
}

// read returns the next message of the client, which has to be of that kind.
func (p *peer) read(kind string) frame {
	p.t.Helper()
	p.ws.SetReadDeadline(time.Now().Add(patience))
	_, data, err := p.ws.ReadMessage()
	if err != nil {
		p.t.Fatalf("no %s: %v", kind, err)
	}
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		p.t.Fatalf("%s: %v", data, err)
	}
	if f["type"] == "begin" && kind != "begin" { // most tests do not look at these
		return p.read(kind)
	}
	if f["type"] != kind {
		p.t.Fatalf("got %s, want %s", data, kind)
	}
	return f
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
