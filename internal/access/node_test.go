package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/access"
	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
	"github.com/tidewire/tidewire/websocket"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds waits that only fail if something is broken.
const patience = time.Minute

var (
	secret   = []byte("a secret of at least 32 bytes, for tests")
	migrated = pgtest.NewTemplate("access", func(ctx context.Context, pool *pgxpool.Pool) error {
		if _, err := migrate.Up(ctx, pool); err != nil {
			return err
		}
		_, err := stream.Ensure(ctx, pool, "orders", stream.Options{})
		return err
	})
)

// node is a server in closed mode.
type node struct {
	t      *testing.T
	url    string
	store  *access.Store
	policy *auth.Policy
	pool   *pgxpool.Pool // of the store
}

// startNode starts a server on the database; function is the name of its SQL function, if it has one.
func startNode(t *testing.T, url, function string) node {
	t.Helper()
	open := func() *pgxpool.Pool {
		pool, err := pg.Open(t.Context(), pg.PoolConfig{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}
	n := node{t: t, store: new(access.Store), pool: open()}
	log := slog.New(slog.DiscardHandler)
	if err := n.store.Open(t.Context(), n.pool, log); err != nil {
		t.Fatal(err)
	}
	key, err := auth.NewSecret("", secret)
	if err != nil {
		t.Fatal(err)
	}
	cfg := auth.Config{Token: auth.TokenConfig{Audience: "tidewire"}, Keys: []auth.Key{key}, Access: n.store.Snapshot}
	if function != "" {
		f := new(access.Function)
		if err := f.Open(t.Context(), open(), log, function); err != nil {
			t.Fatal(err)
		}
		cfg.Ask = f.Ask
	}
	if n.policy, err = auth.NewPolicy(cfg); err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	e, err := postgres.Open(t.Context(), postgres.Config{Pool: open(), URL: url, Stores: true, Metrics: metrics, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background())
	g := gateway.New(gateway.Config{Engine: e.Serves(), Metrics: metrics, Auth: gateway.AuthConfig{Policy: n.policy, Administration: n.store}})
	server := httptest.NewServer(g)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); n.store.Run(ctx) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := g.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		stop()
		<-ended
	})
	n.url = strings.TrimPrefix(server.URL, "http://")
	return n
}

// token signs a token that was issued now.
func token(t *testing.T, user string, claims map[string]any, allow ...string) string {
	t.Helper()
	all := map[string]any{"iat": time.Now().Unix(), "tidewire": map[string]any{"allow": append([]string{}, allow...)}}
	for name, v := range claims {
		all[name] = v
	}
	return authtest.Token(t, secret, user, time.Hour, all)
}

// key makes an API key, and returns its id and its text.
func (n node) key(name string, life time.Duration, allow ...string) (id, text string) {
	n.t.Helper()
	id, text, err := access.CreateKey(n.t.Context(), n.pool, slog.New(slog.DiscardHandler), "test", name, allow, life)
	if err != nil {
		n.t.Fatal(err)
	}
	return id, text
}

// http sends a request, and returns its status and the code of its error.
func (n node) http(method, path, body, token string) string {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.url+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Error struct{ Code string } }
	json.NewDecoder(resp.Body).Decode(&got)
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", got.Error.Code))
}

// await sends a request until it gets a result.
func (n node) await(method, path, token, want string) {
	n.t.Helper()
	testkit.Eventually(n.t, method+" "+path+": "+want, func() bool { return n.http(method, path, "", token) == want })
}

// wire is a connection on /ws.
type wire struct {
	*websocket.Conn
	t    *testing.T
	left []string
}

func (n node) dial(path, token string) (*wire, error) {
	conn, err := websocket.Dial(n.t.Context(), "ws://"+n.url+path, websocket.Config{Header: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		return nil, err
	}
	n.t.Cleanup(conn.Abort)
	return &wire{Conn: conn, t: n.t}, nil
}

func (n node) connect(token string) *wire {
	n.t.Helper()
	w, err := n.dial("/ws", token)
	if err != nil {
		n.t.Fatal(err)
	}
	return w
}

// next returns the next message, or the code with which the connection was closed.
func (w *wire) next() string {
	w.t.Helper()
	w.SetReadDeadline(time.Now().Add(patience))
	for len(w.left) == 0 {
		messages, err := w.Read()
		for _, m := range messages {
			w.left = append(w.left, string(m.Payload))
		}
		if err != nil && len(messages) == 0 {
			closed, ok := errors.AsType[*websocket.CloseError](err)
			if !ok {
				w.t.Fatal(err)
			}
			return fmt.Sprint(int(closed.Code))
		}
	}
	first := w.left[0]
	w.left = w.left[1:]
	return first
}

// ask sends a request, and returns the code of its answer, or ok.
func (w *wire) ask(request string) string {
	w.t.Helper()
	w.Queue(websocket.OpText, []byte(`{"id":1,`+request+`}`))
	w.Flush()
	return codeOf(w.next())
}

func codeOf(answer string) string {
	var got struct{ Type, Code string }
	json.Unmarshal([]byte(answer), &got)
	switch {
	case got.Code != "":
		return got.Code
	case got.Type != "":
		return got.Type
	}
	return answer
}
