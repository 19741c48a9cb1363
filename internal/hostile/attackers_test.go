package hostile

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
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

// orders say what a process of attackers does. It ends before, if its input does.
type orders struct {
	settings
	Addr   string
	Secret []byte // of the gate; nil in open mode
}

// sendAttackers runs a process of attackers, and fails the test if they saw what they must not see.
func (w *world) sendAttackers(set settings, addr string) {
	o, priority := orders{settings: set, Addr: addr}, "19"
	if set.Length == 0 { // latencies do not matter, and on a busy machine it would take long
		priority = "0"
	}
	if w.gate != nil {
		o.Secret = w.gate.secret
	}
	text, err := json.Marshal(o)
	if err != nil {
		w.t.Error(err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		w.t.Error(err)
		return
	}
	cmd := exec.CommandContext(w.giveUp, "nice", "-n", priority, self, "-test.run=^TestAttackers$", "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), attackersOf+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Linux compares priorities within a session alone
	input, err := cmd.StdinPipe()
	if err != nil {
		w.t.Error(err)
		return
	}
	defer input.Close()
	if output, err := cmd.CombinedOutput(); err != nil {
		w.t.Errorf("attackers: %v\n%s", err, output)
	}
}

// TestAttackers is a process of attackers, which TestHostile starts. Alone it does nothing.
func TestAttackers(t *testing.T) {
	text := os.Getenv(attackersOf)
	if text == "" {
		return
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Length > 0 {
		_ = os.WriteFile("/proc/self/autogroup", []byte("19"), 0) // the session's priority, on Linux
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var g *gate
	if o.Secret != nil {
		g = &gate{t: t, secret: o.Secret}
	}
	w := newWorld(t, ctx, ctx, g)
	w.begin(o.Addr)
	defer w.report()
	w.rage(o.settings, o.Addr)
}

// cling has attackers keep connections of some kinds until release is called.
func (w *world) cling(addr string, seed uint64) (release func()) {
	ctx, cancel := context.WithCancel(w.giveUp)
	w.users.Store(1 << 20) // none of those that have attacked
	var attacking, connecting sync.WaitGroup
	for _, it := range slices.Concat(memoryAttacks, edgeAttacks, slowAttacks) {
		if slices.Contains([]string{"slow-readers", "half-open", "messages-unread", "join-unread", "unfinished-messages", "unfinished-bodies", "subscriptions-unread", "idle-keep-alive", "trickle"}, it.name) {
			connecting.Add(1)
			connected := sync.OnceFunc(connecting.Done)
			attacking.Go(func() {
				defer connected()
				w.perform(ctx, it, addr, seed, 1, time.Hour, connected)
			})
		}
	}
	connecting.Wait()
	return func() {
		cancel()
		attacking.Wait()
	}
}

// atOnce is how many attacks run at the same time, and once how long one takes at most that runs once.
const atOnce, once = 4, 400 * time.Millisecond

// rage runs the attacks in a random order, a few at a time: each once, or again and again for a time. In the middle of that time all attacks on memory run
// at once.
func (w *world) rage(set settings, addr string) {
	attacks := set.attacks(w.t)
	random := rand.New(rand.NewPCG(set.Seed, 1))
	each := once
	ctx, cancel := context.WithCancel(w.giveUp)
	if set.Length > 0 {
		ctx, cancel = context.WithTimeout(w.giveUp, set.Length)
		// The attacks share the time that the storm leaves.
		each = min(10*time.Second, max(500*time.Millisecond, set.Length*7/10*atOnce/time.Duration(len(attacks))))
	}
	defer cancel()
	var attacking sync.WaitGroup
	perform := func(it attack, seed uint64, length time.Duration) {
		if it.ends == brief {
			w.perform(w.giveUp, it, addr, seed, set.scale(), patience, nil)
		} else {
			w.perform(ctx, it, addr, seed, set.scale(), length, nil)
		}
	}
	type turn struct {
		attack
		seed uint64
	}
	turns := make(chan turn)
	for range atOnce {
		attacking.Go(func() {
			for it := range turns {
				perform(it.attack, it.seed, each)
			}
		})
	}
	if set.Length > 0 {
		attacking.Go(func() {
			select {
			case <-time.After(set.Length / 3):
			case <-ctx.Done():
			}
			side(len(memoryAttacks), func(i int) {
				if it := memoryAttacks[i]; set.Only == nil || slices.Contains(set.Only, it.name) {
					perform(it, set.Seed, max(each, set.Length/4, 5*time.Second))
				}
			})
		})
	}
	for again := true; again && ctx.Err() == nil; again = set.Length > 0 {
		random.Shuffle(len(attacks), func(i, j int) { attacks[i], attacks[j] = attacks[j], attacks[i] })
		for _, it := range attacks {
			select {
			case turns <- turn{it, random.Uint64()}:
			case <-ctx.Done():
			}
		}
	}
	close(turns)
	attacking.Wait()
}
