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
	"github.com/tidewire/tidewire/internal/testkit"
)

// slack is the number of additional goroutines and files after the attacks that do not count as a leak: the number of open requests of well-behaved
// clients varies. poolMost is the number of additional files for connections to PostgreSQL, which stay open after a busy time.
const slack, poolMost = 60, 40

// These names are shared by well-behaved clients and attackers in closed mode: attackers may publish to the stream and enqueue to the queue, too.
const sharedStream, sharedQueue = "shared-0", "shared-jobs"

// settings come from environment variables, which make test-hostile sets.
type settings struct {
	Seed   uint64
	Length time.Duration // of the attacks; 0: each attack runs once, and those on memory do not run all at once
	Only   []string      // names of attacks; none means all
	Closed bool          // the mode of the server
}

// settingsOf returns the settings of a test, which has a mode and a length of its own unless MODE and DURATION name others.
func settingsOf(t *testing.T, mode, length string) settings {
	t.Helper()
	var s settings
	var err error
	switch mode = cmp.Or(os.Getenv("MODE"), mode); mode {
	case "open":
	case "closed":
		s.Closed = true
	default:
		t.Fatalf("MODE is %q: want open or closed", mode)
	}
	if s.Seed, err = strconv.ParseUint(cmp.Or(os.Getenv("SEED"), "15"), 10, 64); err != nil {
		t.Fatalf("SEED: %v", err)
	}
	if s.Length, err = time.ParseDuration(cmp.Or(os.Getenv("DURATION"), length)); err != nil {
		t.Fatalf("DURATION: %v", err)
	}
	if text := os.Getenv("ATTACK"); text != "" {
		s.Only = strings.Split(text, ",")
	}
	t.Logf("MODE=%s SEED=%d DURATION=%v", mode, s.Seed, s.Length)
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

// scale is how large an attack is.
func (s settings) scale() int {
	if s.Length == 0 {
		return 0
	}
	return 1 + min(9, int(s.Length/(30*time.Second)))
}

// TestHostile runs attacks while well-behaved clients work. See the package's documentation. Without settings each attack runs once, in closed mode, which
// has all of them.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	run(t, settingsOf(t, "closed", "0s"), os.Getenv("TIDEWIRE_HOSTILE_SERVER"))
}

// TestHostile_Memory attacks the program, in both modes, for longer and with all attacks on memory at once. In open mode nothing but its memory limits what
// it holds.
func TestHostile_Memory(t *testing.T) {
	testkit.Long(t)
	program := filepath.Join(t.TempDir(), "tidewire")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", program, "../../cmd/tidewire").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, mode := range []string{"open", "closed"} {
		t.Run(mode, func(t *testing.T) { run(t, settingsOf(t, mode, "12s"), program) })
	}
}

// run runs attacks on the program at a path, or on this program if the path is empty.
func run(t *testing.T, set settings, program string) {
	set.attacks(t) // that they exist, before the server starts
	var g *gate
	if set.Closed {
		g = newGate(t)
	}
	db := pgtest.Open(t)
	s := startServer(t, program, db.URL, g)
	giveUp, stop := context.WithCancel(t.Context())
	defer stop()
	producing, enough := context.WithCancel(giveUp)
	w := newWorld(t, producing, giveUp, g)
	w.begin(s.Addr)
	defer w.report()
	w.prepare(db)
	citizens := w.citizens(set)
	for _, c := range citizens {
		w.lines += c.lines()
	}
	var makers, takers sync.WaitGroup
	for _, c := range citizens {
		makers.Go(c.make)
		takers.Go(c.take)
	}
	w.progress()

	var shown figures
	w.times.begin(alone)
	shown.before = s.sample(time.After(set.Length / 10))
	w.times.begin(attacked)
	shown.peak = w.attack(set, s)
	w.times.begin(other)
	w.judge(s, &shown)

	// The next server must continue with what the last one was stopped in the middle of, while attackers keep their connections.
	release := w.cling(s.Addr, set.Seed)
	close(w.current().stop)
	if err := s.stop(true); err != nil {
		w.fault("server", "stop", "%v", err)
	}
	release()
	s = startServer(t, program, db.URL, g)
	w.begin(s.Addr)
	w.progress()

	enough()
	makers.Wait()
	w.deadline = time.Now().Add(2 * patience)
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
	w.show(s, shown)
}

// citizens are the well-behaved clients.
func (w *world) citizens(set settings) []citizen {
	regular := 2
	if set.Length > 0 {
		regular = 10
	}
	all := []citizen{
		&publishers{w: w, stream: "good-0", publish: 1, readers: 1}, &publishers{w: w, stream: "good-1", publish: 1, readers: 1}, newJobs(w, "good-jobs", false),
		newTalkers(w, "good", false), newTalkers(w, "stored-good", true), &slots{w: w},
		&publishers{w: w, stream: "good-regulars", regular: true, publish: 4 * regular, readers: regular},
	}
	if set.Closed {
		all = append(all, &publishers{w: w, stream: sharedStream, shared: true, publish: 1, readers: 1}, newJobs(w, sharedQueue, true))
	}
	return all
}

// attack has the attackers attack the server, and returns the most that it held meanwhile.
func (w *world) attack(set settings, s *server) (peak held) {
	over := make(chan time.Time)
	go func() {
		defer close(over)
		w.sendAttackers(set, s.Addr)
	}()
	peak = s.sample(over)
	if !s.lives() {
		w.t.Fatal("the server has died")
	}
	return peak
}

// judge checks the server after the attacks.
func (w *world) judge(s *server, shown *figures) {
	w.tidy()
	testkit.Eventually(w.t, "what attackers made the server hold is released", func() (ok bool) {
		var err error
		shown.after, err = s.held()
		return err == nil && shown.after.goroutines <= shown.before.goroutines+slack && shown.after.files <= shown.before.files+slack+poolMost
	})
	samples, err := s.metrics()
	if err != nil {
		w.fault("server", "metrics", "%v", err)
	}
	if n := samples["tidewire_panics_total"]; n > 0 {
		w.fault("server", "panics", "%v: see what it said", n)
	}
	shown.memory, shown.refused = s.peak(), refusals(samples)
	if s.bound > 0 && shown.memory > s.bound {
		w.fault("server", "memory", "%d MiB at the peak, want %d at most", shown.memory>>20, s.bound>>20)
	}
}

// side runs n calls in parallel and returns when all have returned.
func side(n int, call func(i int)) {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { call(i) })
	}
	running.Wait()
}
