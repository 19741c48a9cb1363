package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/embedpg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/wsproxy"
)

// scenario is one entry of a file in scenarios/. Each $ in its text stands for a prefix that no other run has.
type scenario struct {
	Name string `json:"name"`
	// Server, if given, asks for another server: "own", which it may kill, "closed", which needs tokens, "two" (a cluster of two), or "database" (with
	// a PostgreSQL of its own).
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

// parse returns a scenario with a prefix in place of each $, and tokens: a good one, one that grants nothing, one that has ended, and one that soon ends.
func parse(t *testing.T, text []byte, prefix string) (s scenario) {
	t.Helper()
	filled := strings.NewReplacer("$", prefix, "%good", token(t, "admin", time.Hour), "%weak", token(t, "guest", time.Hour),
		"%bad", token(t, "admin", -time.Hour), "%short", token(t, "admin", 18*time.Second)).Replace(string(text))
	if err := json.Unmarshal([]byte(filled), &s); err != nil {
		t.Fatalf("%v in %.100s", err, text)
	}
	return s
}

// stage is what the scenarios of a library share.
type stage struct {
	library
	runner  *runner
	open    *server
	closed  *server
	killing sync.Mutex
	killed  *server // that one scenario after the other kills and starts again
}

// TestConformance runs all scenarios with all libraries.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	t.Parallel()
	open, closed := startServer(t, pgtest.Open(t)), startServer(t, pgtest.Open(t), closedMode(t)...)
	texts := scenarios(t)
	for i, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.require(t)
			on := &stage{library: l, runner: startRunner(t, l), open: open, closed: closed, killed: startServer(t, pgtest.Open(t))}
			names := map[string]bool{}
			for j, text := range texts {
				prefix := fmt.Sprintf("%c%d-", 'a'+i, j)
				s := parse(t, text, prefix)
				if names[s.Name] {
					t.Errorf("there are two scenarios %q", s.Name)
				}
				names[s.Name] = true
				t.Run(strings.ReplaceAll(s.Name, " ", "_"), func(t *testing.T) {
					t.Parallel()
					parse(t, text, prefix).run(t, on, prefix) // its tokens begin now
				})
			}
		})
	}
}

// world is what the steps of a scenario act on.
type world struct {
	t       *testing.T
	prefix  string    // of the names of its clients and iterations
	servers []*server // of this scenario; one that is shared is not killed
	own     bool
	db      *embedpg.Server // of a server with a PostgreSQL of its own
	proxy   *wsproxy.Proxy
	runner  *runner
	clients []any
	ids     map[int]bool   // of its commands
	begun   map[string]int // commands that have no answer yet
}

// newWorld makes streams and queues at the first server, and starts a proxy.
func newWorld(t *testing.T, r *runner, prefix string, streams, queues []string, servers ...*server) *world {
	t.Helper()
	w := &world{t: t, runner: r, prefix: prefix, servers: servers, ids: map[int]bool{}, begun: map[string]int{}}
	for _, name := range streams {
		w.server().want(t, "POST", "/v1/streams/"+name, nil)
	}
	for _, name := range queues {
		w.server().want(t, "POST", "/v1/queues/"+name, nil)
	}
	proxy, err := wsproxy.New("127.0.0.1:0", w.server().Addr)
	if err != nil {
		t.Fatal(err)
	}
	w.proxy = proxy
	t.Cleanup(w.end)
	return w
}

// end closes the clients, and shows the lines of a scenario that has failed.
func (w *world) end() {
	w.proxy.Clear()
	var closing []int
	for _, name := range w.clients {
		closing = append(closing, w.runner.send(fields{"do": "close", "client": name}))
	}
	for _, id := range closing {
		w.runner.answer(id)
	}
	w.proxy.Close()
	if !w.t.Failed() {
		return
	}
	w.runner.mu.Lock()
	defer w.runner.mu.Unlock()
	lines := slices.DeleteFunc(slices.Clone(w.runner.all), func(l line) bool { return !w.ids[l.id] && !strings.Contains(l.text, `"`+w.prefix) })
	if len(lines) > 200 {
		lines = append(append(lines[:100:100], line{0, "…"}), lines[len(lines)-100:]...)
	}
	for _, l := range lines {
		w.t.Log(l.text)
	}
}

// run runs the scenario with a library.
func (s scenario) run(t *testing.T, on *stage, prefix string) {
	servers, own := []*server{on.open}, true
	var db *embedpg.Server
	switch {
	case s.Server == "own" && s.Flags == nil:
		on.killing.Lock()
		defer on.killing.Unlock()
		servers = []*server{on.killed}
	case s.Server == "own":
		servers = []*server{startServer(t, pgtest.Open(t), s.Flags...)}
	case s.Server == "closed":
		servers, own = []*server{on.closed}, false
	case s.Server == "database":
		db = pgtest.Start(t)
		servers = []*server{startServer(t, pgtest.DB{URL: db.URL()}, s.Flags...)}
	case s.Server == "two":
		db := pgtest.Open(t)
		flags := append([]string{"--cluster", "conformance", "--cluster-listen", "127.0.0.1:0"}, s.Flags...)
		servers = []*server{startServer(t, db, flags...), startServer(t, db, flags...)}
	default:
		own = false
	}
	r := on.runner
	if slices.ContainsFunc(s.Steps, func(step fields) bool { return step["runner"] != nil }) { // which stops it
		r = startRunner(t, on.library)
	}
	w := newWorld(t, r, prefix, s.Streams, s.Queues, servers...)
	w.own, w.db = own, db
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
