package room

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPresence_TakeAgainstPlainSets compares batches with the difference of two
// sets, over random joins and leaves.
func TestPresence_TakeAgainstPlainSets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 7))
	hub := NewHub(Config{})
	first := hub.Join(nil, "r", JoinOptions{User: "first"})
	p := newPresence(first.room) // without its goroutine
	first.room.presence = p
	members := []*Member{first}
	told := map[string]bool{"first": true}
	wholes, quiet := 0, 0
	for round := range 400 {
		before := len(members)
		changes := random.IntN(30)
		if round%50 == 49 {
			changes = 3 * maxNames
		}
		for range changes {
			if at := random.IntN(len(members) + 1); at > 0 && at < len(members) && random.IntN(2) == 0 {
				members[at].Leave()
				members = slices.Delete(members, at, at+1)
			} else {
				members = append(members, hub.Join(nil, "r", JoinOptions{User: someName(random, changes)}))
			}
		}
		truth := make(map[string]bool)
		for _, m := range members {
			if m.user != "" {
				truth[m.user] = true
			}
		}
		s := p.take()
		if s.whole {
			wholes++
			if want := min(len(truth), maxNames); len(s.members) != want || s.truncated != (len(truth) > maxNames) {
				t.Fatalf("round %d: %d names, truncated %v, of %d", round, len(s.members), s.truncated, len(truth))
			}
			for _, name := range s.members {
				if !truth[name] {
					t.Fatalf("round %d: %q is listed and not there", round, name)
				}
			}
		} else {
			if !s.changed {
				quiet++
			}
			if want := len(members) != before || !maps.Equal(told, truth); s.changed != want {
				t.Fatalf("round %d: changed %v, want %v", round, s.changed, want)
			}
			apply(t, told, s)
			if !maps.Equal(told, truth) {
				t.Fatalf("round %d: %d names told, %d there", round, len(told), len(truth))
			}
		}
		if told = truth; p.count != len(members) || len(p.names) != len(truth) || len(p.before) != 0 {
			t.Fatalf("round %d: count %d of %d, %d names of %d", round, p.count, len(members), len(p.names), len(truth))
		}
	}
	if wholes == 0 || quiet == 0 {
		t.Errorf("%d whole lists, %d rounds without a change, want some", wholes, quiet)
	}
	for _, m := range members {
		m.Leave()
	}
	hub.Wait()
}

// someName returns one of few names, so that many are shared, or of many.
func someName(random *rand.Rand, changes int) string {
	if random.IntN(10) == 0 {
		return ""
	}
	return fmt.Sprint(random.IntN(5 + changes))
}

// apply applies a batch to told, and fails if it repeats a change.
func apply(t *testing.T, told map[string]bool, s state) {
	t.Helper()
	for _, name := range s.joined {
		if told[name] {
			t.Fatalf("%q joined twice", name)
		}
		told[name] = true
	}
	for _, name := range s.left {
		if !told[name] {
			t.Fatalf("%q left twice", name)
		}
		delete(told, name)
	}
}

// TestPresence_EndsWhenNobodyWatches: the names are dropped, not at once, and
// collected again for the next watcher.
func TestPresence_EndsWhenNobodyWatches(t *testing.T) {
	t.Parallel()
	hub := NewHub(Config{})
	stays := hub.Join(nil, "r", JoinOptions{User: "stays"})
	r := stays.room
	r.presence = newPresence(r)
	w := &watcher{member: stays}
	r.presence.watchers = append(r.presence.watchers, w)
	if r.presence.retire() {
		t.Fatal("retired under a watcher")
	}
	r.presence.remove(w)
	p := r.presence
	hub.flushers.Go(p.run)
	p.nudge()
	hub.Join(nil, "r", JoinOptions{User: "goes"}).Leave()
	for gone := false; !gone; {
		r.mu.Lock()
		gone = r.presence == nil
		r.mu.Unlock()
	}
	if again := newPresence(r); len(again.names) != 1 || again.names["stays"] != 1 || again.count != 1 {
		t.Errorf("collected %v, count %d", again.names, again.count)
	}
	stays.Leave()
	hub.Wait()
}
