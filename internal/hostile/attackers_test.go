package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The attackers are a process of their own, which has the lowest priority: it gets the processor time that the server and its well-behaved clients leave.
// Real attackers have machines of their own. In one process with the well-behaved clients, they would take time and memory from the clients and not only
// from the server, and the latencies would be those of the test.

// attackersOf is the environment variable with the orders of a process of attackers.
const attackersOf = "TIDEWIRE_TEST_ATTACKERS"

// orders say what a process of attackers does, until its input ends.
type orders struct {
	settings
	Addr   string
	Secret []byte // of the gate; nil in open mode
	Cling  bool   // keep connections, and do nothing else
}

// attackers are a process of attackers.
type attackers struct {
	w         *world
	input     io.Closer
	connected chan struct{}
	done      chan struct{} // closed when the process has ended and the fields below are set
	said      strings.Builder
	err       error
}

// startAttackers starts a process of attackers. End it with release.
func (w *world) startAttackers(o orders) *attackers {
	w.t.Helper()
	if w.gate != nil {
		o.Secret = w.gate.secret
	}
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command("nice", "-n", "19", self, "-test.run=^TestAttackers$", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), attackersOf+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Linux compares priorities within a session alone
	a := &attackers{w: w, connected: make(chan struct{}), done: make(chan struct{})}
	output, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if a.input, err = cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		a.listen(output)
		a.err = cmd.Wait()
		close(a.done)
	}()
	return a
}

// Lines of a process of attackers that the test reads.
const (
	saysConnected = "attackers are connected"
	saysRefused   = "attackers were refused: "
)

func (a *attackers) listen(output io.Reader) {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		line := lines.Text()
		if line == saysConnected {
			close(a.connected)
		}
		if text, ok := strings.CutPrefix(line, saysRefused); ok {
			var n int64
			fmt.Sscan(text, &n)
			a.w.refused.n.Add(n)
		}
		fmt.Fprintln(&a.said, line)
	}
	io.Copy(io.Discard, output) // after a line that is too long
}

// awaitConnected waits until attackers that cling have had time to connect.
func (a *attackers) awaitConnected() {
	select {
	case <-a.connected:
	case <-a.done:
	}
}

// release ends the attackers, and fails the test if they saw what they must not see.
func (a *attackers) release() {
	a.input.Close()
	<-a.done
	if a.err != nil {
		a.w.t.Errorf("attackers: %v\n%s", a.err, a.said.String())
	}
}

// TestAttackers is a process of attackers, which TestHostile starts. Alone it does nothing.
func TestAttackers(t *testing.T) {
	text := os.Getenv(attackersOf)
	if text == "" {
		return
	}
	_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0) // the session's priority, on Linux
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	w := &world{t: t, producing: ctx, giveUp: ctx, drained: make(chan struct{}), faults: make(map[string]*fault)}
	if o.Secret != nil {
		w.gate = &gate{t: t, secret: o.Secret}
	}
	w.begin(o.Addr)
	defer w.report()
	if o.Cling {
		w.users.n.Store(1 << 20) // none of those that have attacked
		w.cling(o)
	} else {
		w.rage(o.settings, o.Addr)
	}
	fmt.Printf("%s%d\n", saysRefused, w.refused.n.Load())
}

// cling keeps connections of some kinds.
func (w *world) cling(o orders) {
	var attacking sync.WaitGroup
	for _, it := range slices.Concat(memoryAttacks, edgeAttacks, slowAttacks) {
		if slices.Contains([]string{"slow-readers", "half-open", "messages-unread", "join-unread", "unfinished-messages", "unfinished-bodies", "no-credits", "idle-keep-alive", "trickle"}, it.name) {
			attacking.Go(func() { w.perform(w.giveUp, it, o.Addr, o.Seed, 1, time.Hour) })
		}
	}
	time.Sleep(time.Second) // so that they have connected; with less time the stop is easier
	fmt.Println(saysConnected)
	attacking.Wait()
}

// rage runs the attacks: in the middle of the time all attacks on memory at
// once, and otherwise a few at a time, each at least once if there is enough
// time.
func (w *world) rage(set settings, addr string) {
	attacks := set.attacks(w.t)
	random := rand.New(rand.NewPCG(set.Seed, 1))
	ctx, cancel := context.WithTimeout(w.giveUp, set.Length)
	defer cancel()
	var mu sync.Mutex
	var next []attack
	perform := func(it attack, length time.Duration) {
		mu.Lock()
		seed := random.Uint64()
		mu.Unlock()
		if it.ends == brief {
			w.perform(w.giveUp, it, addr, seed, set.scale(), patience)
		} else {
			w.perform(ctx, it, addr, seed, set.scale(), length)
		}
	}
	pick := func() attack {
		mu.Lock()
		defer mu.Unlock()
		if len(next) == 0 {
			next = slices.Clone(attacks)
			random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		it := next[0]
		next = next[1:]
		return it
	}
	// The attacks share the time that is left after the storm.
	each := min(10*time.Second, max(500*time.Millisecond, set.Length*7/10*atOnce/time.Duration(len(attacks))))
	var attacking sync.WaitGroup
	storm := time.NewTimer(set.Length / 3)
	defer storm.Stop()
	for range atOnce {
		attacking.Go(func() {
			for ctx.Err() == nil {
				perform(pick(), each)
			}
		})
	}
	select {
	case <-ctx.Done():
	case <-storm.C:
		for _, it := range memoryAttacks {
			if set.Only == nil || slices.Contains(set.Only, it.name) {
				attacking.Go(func() { perform(it, max(each, set.Length/4, stormLeast)) })
			}
		}
	}
	attacking.Wait()
}
