package eventstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

// kept counts events, with a snapshot after every third event. seen, if not nil, counts
// the events that it has applied.
func kept(seen *int) eventstore.Projector[map[string]int] {
	return eventstore.Projector[map[string]int]{
		Query: eventstore.Tagged("x"),
		Init:  func() map[string]int { return map[string]int{} },
		Apply: func(counts map[string]int, e eventstore.Event) map[string]int {
			if seen != nil {
				*seen++
			}
			counts[e.Type]++
			return counts
		},
		Snapshot: &eventstore.Snapshot[map[string]int]{Name: "kept", Every: 3},
	}
}

// wantKept projects, and fails the test unless it gets that state from that number of events.
func wantKept(t *testing.T, s *eventstore.Store, p eventstore.Projector[map[string]int], seen *int, state string, events int) {
	t.Helper()
	*seen = 0
	projection := p.Projection()
	if _, err := s.Project(t.Context(), projection); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(projection.State); got != "map["+state+"]" || *seen != events {
		t.Errorf("state %s by %d events, want %s by %d", got, *seen, state, events)
	}
}

func snapshotAt(t *testing.T, pool *pgxpool.Pool) (position int64) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT coalesce(max(position), 0) FROM tidewire.event_snapshot`).Scan(&position); err != nil {
		t.Fatal(err)
	}
	return position
}

func TestSnapshot_ProjectGoesOn(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	var seen int
	p := kept(&seen)
	wantKept(t, s, p, &seen, "", 0) // of an empty store there is none
	mustAppend(t, s, event("A", "x"), event("B", "x"))
	wantKept(t, s, p, &seen, "A:1 B:1", 2)
	wantKept(t, s, p, &seen, "A:1 B:1", 2) // not due yet
	mustAppend(t, s, event("A", "x"), event("Other"))
	wantKept(t, s, p, &seen, "A:2 B:1", 3)
	if at := snapshotAt(t, db.Pool); at != 4 {
		t.Errorf("snapshot at %d, want 4: it has looked at all", at)
	}
	wantKept(t, s, p, &seen, "A:2 B:1", 0)
	mustAppend(t, s, event("A", "x"))
	all := eventstore.Projector[int]{Query: eventstore.Everything(), Apply: func(n int, _ eventstore.Event) int { return n + 1 }}.Projection()
	seen = 0
	projection := p.Projection()
	condition, err := s.Project(t.Context(), all, projection)
	if err != nil || all.State != 5 || seen != 1 || projection.State["A"] != 3 || condition.After != 5 {
		t.Errorf("beside one without: %d, %d, %v, %+v, %v", all.State, seen, projection.State, condition, err)
	}
	if err := s.VerifySnapshots(t.Context(), p.Projection()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", strings.Repeat("n", 129), "a\x00"} {
		p.Snapshot.Name = name
		if _, err := s.Project(t.Context(), p.Projection()); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("name %q: %v, want ErrInvalid", name, err)
		}
	}
	if _, err := s.Project(t.Context(), kept(nil).Projection(), kept(nil).Projection()); !errors.Is(err, eventstore.ErrInvalid) {
		t.Errorf("two of one name: %v, want ErrInvalid", err)
	}
}

// TestSnapshot_Unusable: a snapshot that is damaged, of another projection, or past the end
// of the store is not used; it is logged and replaced.
func TestSnapshot_Unusable(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	mustAppend(t, s, event("A", "x"), event("A", "x"), event("B", "x"))
	var seen int
	for name, spoil := range map[string]string{
		"state":                 `UPDATE tidewire.event_snapshot SET state = '{"A":7}'`,
		"position":              `UPDATE tidewire.event_snapshot SET position = 2`,
		"position after":        `UPDATE tidewire.event_snapshot SET position = 1000`,
		"fingerprint":           `UPDATE tidewire.event_snapshot SET fingerprint = '\x00'`,
		"not the store's end":   `UPDATE tidewire.event_snapshot SET position = 99, checksum = sha256(int8send(99) || fingerprint || state)`,
		"state of another kind": `UPDATE tidewire.event_snapshot SET state = '[]', checksum = sha256(int8send(position) || fingerprint || '[]')`,
	} {
		wantKept(t, s, kept(&seen), &seen, "A:2 B:1", 3)
		mustExec(t, db.Pool, spoil)
		var wrong *eventstore.SnapshotError
		if err := s.VerifySnapshots(t.Context(), kept(nil).Projection()); !errors.As(err, &wrong) || wrong.Name != "kept" {
			t.Errorf("%s: %v, want a SnapshotError", name, err)
		}
		wantKept(t, s, kept(&seen), &seen, "A:2 B:1", 3)
		wantKept(t, s, kept(&seen), &seen, "A:2 B:1", 0) // replaced
		mustExec(t, db.Pool, `DELETE FROM tidewire.event_snapshot`)
	}
	wantKept(t, s, kept(&seen), &seen, "A:2 B:1", 3)
	mustAppend(t, s, event("A", "x")) // not in the snapshot
	changed := kept(nil)              // and its version was not
	changed.Apply = func(counts map[string]int, e eventstore.Event) map[string]int {
		counts[e.Type] += 2
		return counts
	}
	var wrong *eventstore.SnapshotError
	err := s.VerifySnapshots(t.Context(), changed.Projection())
	if !errors.As(err, &wrong) || !errors.Is(err, eventstore.ErrSnapshot) || wrong.Position != 3 || !strings.Contains(wrong.Problem, "2") || !strings.Contains(wrong.Problem, "4") {
		t.Errorf("%v, want both states at 3", err)
	}
	other := kept(&seen)
	other.Query = eventstore.Typed("A")
	wantKept(t, s, other, &seen, "A:3", 3)
	older := kept(&seen)
	older.Snapshot.Version = -1
	wantKept(t, s, older, &seen, "A:3 B:1", 4)
	wantKept(t, s, older, &seen, "A:3 B:1", 0)
	wantKept(t, s, kept(&seen), &seen, "A:3 B:1", 4)
}

// TestSnapshot_NeverGoesBack has projections of two Stores save while events
// are appended: a snapshot's position only grows, and its state is right.
func TestSnapshot_NeverGoesBack(t *testing.T) {
	slow(t)
	t.Parallel()
	db := setup(t)
	stores := []*eventstore.Store{open(t, db.Pool, eventstore.Config{}), open(t, poolOf(t, db.URL), eventstore.Config{})}
	done := make(chan struct{})
	var projecting sync.WaitGroup
	for c := range 4 {
		projecting.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				p := kept(nil)
				p.Snapshot.Every = 1 + c
				projection := p.Projection()
				condition, err := stores[c%2].Project(t.Context(), projection)
				if n := int64(projection.State["A"]); err != nil || n != condition.After {
					t.Errorf("counted %d of %d events, %v", n, condition.After, err)
					return
				}
			}
		})
	}
	last := int64(0)
	for range 150 {
		mustAppend(t, stores[0], event("A", "x"))
		at := snapshotAt(t, db.Pool)
		if at < last {
			t.Errorf("snapshot at %d, and before at %d", at, last)
		}
		last = at
	}
	close(done)
	projecting.Wait()
	if err := stores[1].VerifySnapshots(t.Context(), kept(nil).Projection()); err != nil || last == 0 {
		t.Errorf("last at %d, %v", last, err)
	}
}

// TestSnapshot_OfNoBytes: an encoding may have none for a state, and give nil.
func TestSnapshot_OfNoBytes(t *testing.T) {
	t.Parallel()
	db, s := opened(t)
	mustAppend(t, s, event("A", "x"))
	p := eventstore.Projector[struct{}]{
		Query: eventstore.Tagged("x"),
		Apply: func(state struct{}, _ eventstore.Event) struct{} { return state },
		Snapshot: &eventstore.Snapshot[struct{}]{
			Name: "nothing", Every: 1,
			Encode: func(struct{}) ([]byte, error) { return nil, nil },
			Decode: func([]byte) (state struct{}, err error) { return state, nil },
		},
	}
	if _, err := s.Project(t.Context(), p.Projection()); err != nil {
		t.Fatal(err)
	}
	if at := snapshotAt(t, db.Pool); at != 1 {
		t.Errorf("snapshot at %d, want 1", at)
	}
	if err := s.VerifySnapshots(t.Context(), p.Projection()); err != nil {
		t.Error(err)
	}
}
