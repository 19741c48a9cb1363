package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/wsproxy"
)

// scenario is one entry of a file in scenarios/. Each $ in its text stands for a prefix that no other run has.
type scenario struct {
	Name string `json:"name"`
	// Server, if given, asks for a server of its own: "own", "closed" (which needs tokens), "two" (a cluster of two), or "database" (with a PostgreSQL of its own).
	Server  string   `json:"server"`
	Flags   []string `json:"flags"` // of its own server
	Streams []string `json:"streams"`
	Queues  []string `json:"queues"`
	Steps   []fields `json:"steps"`
}

// scenarios reads all files.
func scenarios(t *testing.T) (all []json.RawMessage) {
	t.Helper()
	files, err := filepath.Glob("scenarios/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var some []json.RawMessage
		if err := json.Unmarshal(text, &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, some...)
	}
	return all
}

// parse returns a scenario with a prefix in place of each $.
func parse(t *testing.T, text []byte, prefix string) (s scenario) {
	t.Helper()
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "$", prefix)), &s); err != nil {
		t.Fatalf("%v in %.100s", err, text)
	}
	return s
}

// TestConformance runs all scenarios with all libraries.
func TestConformance(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	shared := startServer(t, db)
	texts := scenarios(t)
	for i, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.require(t)
			names := map[string]bool{}
			for j, text := range texts {
				s := parse(t, text, fmt.Sprintf("%c%d-", 'a'+i, j))
				if names[s.Name] {
					t.Errorf("there are two scenarios %q", s.Name)
				}
				names[s.Name] = true
				t.Run(strings.ReplaceAll(s.Name, " ", "_"), func(t *testing.T) {
					t.Parallel()
					s.run(t, l, shared)
				})
			}
		})
	}
}

// world is what the steps of a scenario act on.
type world struct {
	t       *testing.T
	servers []*server // of this scenario; one that is shared is not killed
	own     bool
	db      *embedpg.Server // of a server with a PostgreSQL of its own
	proxy   *wsproxy.Proxy
	runner  *runner
	begun   map[string]int // commands that have no answer yet
}

// newWorld makes streams and queues at the first server, and starts a proxy and the runner of a library.
func newWorld(t *testing.T, l library, own bool, streams, queues []string, servers ...*server) *world {
	t.Helper()
	w := &world{t: t, servers: servers, own: own, begun: map[string]int{}}
	for _, name := range streams {
		w.server().want(t, "POST", "/v1/streams/"+name, nil)
	}
	for _, name := range queues {
		w.server().want(t, "POST", "/v1/queues/"+name, nil)
	}
	proxy, err := wsproxy.New("127.0.0.1:0", w.server().addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	w.proxy, w.runner = proxy, startRunner(t, l)
	return w
}

// run runs the scenario with a library.
func (s scenario) run(t *testing.T, l library, shared *server) {
	servers := []*server{shared}
	var db *embedpg.Server
	switch s.Server {
	case "own":
		servers = []*server{startServer(t, pgtest.Open(t), s.Flags...)}
	case "closed":
		servers = []*server{startServer(t, pgtest.Open(t), append(closed(t), s.Flags...)...)}
	case "database":
		db = pgtest.Start(t)
		servers = []*server{startServer(t, pgtest.DB{URL: db.URL()}, s.Flags...)}
	case "two":
		db := pgtest.Open(t)
		flags := append([]string{"--cluster", "conformance", "--cluster-listen", "127.0.0.1:0"}, s.Flags...)
		servers = []*server{startServer(t, db, flags...), startServer(t, db, flags...)}
	}
	w := newWorld(t, l, s.Server != "", s.Streams, s.Queues, servers...)
	w.db = db
	for i, step := range s.Steps {
		began := time.Now()
		if err := w.step(step); err != nil {
			text, _ := json.Marshal(step)
			t.Fatalf("step %d, %.300s: %v (after %v)", i+1, text, err, time.Since(began).Round(time.Millisecond))
		}
	}
	if left := w.proxy.State().Waiting; left > 0 {
		t.Errorf("%d faults have met no message", left)
	}
}

func (w *world) server() *server { return w.servers[0] }
