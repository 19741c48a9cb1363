package hostile

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
)

const (
	// atOnce is how many attacks run at the same time.
	atOnce = 4
	// stormLeast is the minimum time for which all attacks on memory run at the same time.
	stormLeast = 5 * time.Second
	// slack is the number of additional goroutines and files after the attacks
	// that do not count as a leak: the number of open requests of well-behaved
	// clients varies.
	slack = 60
	// poolMost is the number of additional files for connections to PostgreSQL,
	// which stay open after a busy time.
	poolMost = 40
)

// settings come from environment variables, which make test-hostile sets.
type settings struct {
	Seed   uint64
	Length time.Duration
	Only   []string // names of attacks; none means all
	Closed bool     // the mode of the server
	Long   bool     // DURATION is set
}

// settingsOf returns the settings of a test, which has a mode of its own unless MODE names one.
func settingsOf(t *testing.T, mode string) settings {
	t.Helper()
	s := settings{Seed: 15, Length: 5 * time.Second}
	if pgtest.Seeds() > 1 {
		s.Length = 12 * time.Second
	}
	switch mode = cmp.Or(os.Getenv("MODE"), mode); mode {
	case "open":
	case "closed":
		s.Closed = true
	default:
		t.Fatalf("MODE is %q: want open or closed", mode)
	}
	if text := os.Getenv("SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED is %q: want a number", text)
		}
		s.Seed = seed
	}
	if text := os.Getenv("DURATION"); text != "" {
		length, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("DURATION is %q: want a time such as 10m", text)
		}
		s.Length, s.Long = length, true
	}
	if text := os.Getenv("ATTACK"); text != "" {
		s.Only = strings.Split(text, ",")
	}
	return s
}

// attacks returns all attacks, or the requested ones.
func (s settings) attacks(t *testing.T) []attack {
	t.Helper()
	all := slices.Concat(memoryAttacks, edgeAttacks, slowAttacks, floodAttacks, wordAttacks, randomAttacks)
	if s.Closed {
		all = slices.Concat(all, tokenAttacks, rightAttacks)
	}
	if s.Only == nil {
		return all
	}
	some := slices.DeleteFunc(slices.Clone(all), func(a attack) bool { return !slices.Contains(s.Only, a.name) })
	if len(some) < len(s.Only) {
		var names []string
		for _, a := range all {
			names = append(names, a.name)
		}
		t.Fatalf("ATTACK is %s: want some of %s", s.Only, strings.Join(names, ","))
	}
	return some
}

// pause is how long a well-behaved client that sends as much as it may rests after each read of answers. In a long run, which measures latencies, they
// must leave the server some of its time: one that has no time left is slow without any attack.
func (s settings) pause() time.Duration {
	if s.Long {
		return 50 * time.Millisecond
	}
	return 2 * time.Millisecond
}

// scale is how large an attack is.
func (s settings) scale() int { return 1 + min(9, int(s.Length/(30*time.Second))) }

// TestHostile runs attacks while well-behaved clients work. See the package's
// documentation. Without settings the server is in open mode.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel() // with the other test: both mostly wait
	run(t, settingsOf(t, "open"), os.Getenv("TIDEWIRE_HOSTILE_SERVER"))
}

// TestHostile_Memory is TestHostile with a server without the race detector, whose
// memory is limited, and in closed mode: so a run of all tests has both modes.
func TestHostile_Memory(t *testing.T) {
	if testing.Short() || os.Getenv("DURATION") != "" {
		t.Skip("takes a minute; make test-hostile runs TestHostile with both servers")
	}
	t.Parallel()
	run(t, settingsOf(t, "closed"), plainServer(t))
}

// plainServer builds the program without the race detector.
func plainServer(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "tidewire")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../../cmd/tidewire").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// run runs attacks on the program at a path, or on this program if the path is empty.
func run(t *testing.T, set settings, program string) {
	set.attacks(t) // that they exist, before the server starts
	t.Logf("SEED=%d DURATION=%v closed: %v", set.Seed, set.Length, set.Closed)
	var g *gate
	if set.Closed {
		g = newGate(t)
	}
	db := pgtest.Open(t)
	s := startServer(t, program, db.URL, g)
	giveUp, stop := context.WithCancel(t.Context())
	defer stop()
	producing, enough := context.WithCancel(giveUp)
	w := &world{t: t, program: program, gate: g, pause: set.pause(), producing: producing, giveUp: giveUp, drained: make(chan struct{}), faults: make(map[string]*fault)}
	w.begin(s.addr)
	defer w.report()
	w.prepare(db)
	citizens := w.citizens(set)
	var makers, takers sync.WaitGroup
	for _, c := range citizens {
		makers.Go(c.make)
		takers.Go(c.take)
		if p, ok := c.(*publisher); ok {
			takers.Go(p.readHTTP)
		}
	}

	var shown figures
	shown.before = w.quiet(s, set)
	w.attack(set, s, &shown)
	if !s.lives() {
		t.Fatal("the server has died")
	}
	w.judge(s, &shown)

	// The next server must continue with what the last one was stopped in the
	// middle of, while attackers keep their connections.
	s = w.restart(set, s, db.URL)
	time.Sleep(2 * time.Second) // so that the well-behaved clients make progress
	enough()
	makers.Wait()
	close(w.drained)
	takers.Wait()
	for _, c := range citizens {
		if err := c.check(t.Context(), db.Pool); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
	stop()
	if err := s.stop(false); err != nil {
		w.fault("server", "stop without clients", "%v", err)
	}
	w.show(shown)
}

// These names are shared by well-behaved clients and attackers in closed mode: attackers may publish to the stream and enqueue to the queue, too.
const sharedStream, sharedQueue = "shared-0", "shared-jobs"

// citizens are the well-behaved clients.
func (w *world) citizens(set settings) []citizen {
	regular := 10
	if set.Long {
		regular = 50
	}
	all := []citizen{
		&publisher{w: w, stream: "good-0"}, &publisher{w: w, stream: "good-1"}, newJobs(w, "good-jobs", false),
		newTalkers(w, "good", false), newTalkers(w, "stored-good", true), &slots{w: w}, &feeder{w: w}, &regulars{w: w, stream: "good-regulars", n: regular},
	}
	if set.Closed {
		all = append(all, &publisher{w: w, stream: sharedStream, shared: true}, newJobs(w, sharedQueue, true))
	}
	return all
}

// attack has the attackers attack the server for a while, and measures it meanwhile.
func (w *world) attack(set settings, s *server, shown *figures) {
	w.times.begin(attacked)
	defer w.times.begin(other)
	var sampling sync.WaitGroup
	over := make(chan struct{})
	sampling.Go(func() { shown.sample(s, over) })
	defer sampling.Wait()
	defer close(over)
	all := w.startAttackers(orders{settings: set, Addr: s.addr})
	defer all.release()
	select {
	case <-all.done:
	case <-s.done: // the server has died
	}
}

// quiet is the most that the server holds for the well-behaved clients alone,
// within a short time.
func (w *world) quiet(s *server, set settings) (most held) {
	rounds := 30
	if set.Long {
		time.Sleep(2 * time.Second) // the first requests open streams
		rounds = 100
	}
	w.times.begin(alone)
	for range rounds {
		now, err := s.held()
		if err != nil {
			w.t.Fatal(err)
		}
		most = held{max(most.goroutines, now.goroutines), max(most.files, now.files)}
		time.Sleep(100 * time.Millisecond)
	}
	return most
}

// judge checks the server after the attacks.
func (w *world) judge(s *server, shown *figures) {
	w.tidy()
	quiet, now := shown.before, held{}
	w.wait("server", "what attackers made it hold is released", func() (ok bool) {
		var err error
		now, err = s.held()
		return err == nil && now.goroutines <= quiet.goroutines+slack && now.files <= quiet.files+slack+poolMost
	})
	shown.after = now
	samples, err := s.metrics()
	if err != nil {
		w.fault("server", "metrics", "%v", err)
	}
	if n := samples["tidewire_panics_total"]; n > 0 {
		w.fault("server", "panics", "%v: see what it said", n)
	}
	peak := s.peak()
	if w.gate != nil {
		w.t.Logf("%d requests on what others own", w.refused.n.Load())
	}
	shown.memory, shown.refused = peak, refusals(samples)
	if w.program != "" && peak > memoryBound {
		w.fault("server", "memory", "%d MiB at the peak, want %d at most", peak>>20, memoryBound>>20)
	}
}

// restart stops the server while attackers keep their connections, and starts another.
func (w *world) restart(set settings, s *server, url string) *server {
	clinging := w.startAttackers(orders{settings: set, Addr: s.addr, Cling: true})
	clinging.awaitConnected()
	close(w.current().stop)
	if err := s.stop(true); err != nil {
		w.fault("server", "stop", "%v", err)
	}
	clinging.release()
	s = startServer(w.t, w.program, url, w.gate)
	w.begin(s.addr)
	return s
}
