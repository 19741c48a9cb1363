package postgres

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errMissing = errors.New("there is none")

type thing struct{ name string }

func testRegistry(open func(ctx context.Context, name string) (*thing, error)) *registry[*thing] {
	return newRegistry(registryConfig[*thing]{Open: open, ErrClosed: errors.New("closed"), Log: slog.New(slog.DiscardHandler)})
}

// TestRegistry_SlowName: a slow open does not delay other names, and all callers
// of the same name get one value.
func TestRegistry_SlowName(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	var opened atomic.Int32
	r := testRegistry(func(_ context.Context, name string) (*thing, error) {
		if name == "slow" {
			opened.Add(1)
			close(began)
			<-release
		}
		return &thing{name}, nil
	})
	var got [3]*thing
	var waiting sync.WaitGroup
	for i := range got {
		waiting.Go(func() { got[i], _ = r.get(t.Context(), "slow") })
	}
	<-began
	if v, err := r.get(t.Context(), "fast"); err != nil || v.name != "fast" {
		t.Errorf("got %v, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.get(ctx, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	close(release)
	waiting.Wait()
	if got[0] == nil || got[1] != got[0] || got[2] != got[0] || opened.Load() != 1 {
		t.Errorf("got %v, opened %d times", got, opened.Load())
	}
}

// TestRegistry_UnknownName: an unknown name is looked up only now and then, however
// often it is requested, and at once after it was created.
func TestRegistry_UnknownName(t *testing.T) {
	t.Parallel()
	var lookups atomic.Int32
	var made atomic.Bool
	r := testRegistry(func(_ context.Context, name string) (*thing, error) {
		lookups.Add(1)
		if made.Load() {
			return &thing{name}, nil
		}
		return nil, errMissing
	})
	began := time.Now()
	for range 10_000 {
		if _, err := r.get(t.Context(), "none"); !errors.Is(err, errMissing) {
			t.Fatal(err)
		}
	}
	if most := 1 + int32(time.Since(began)/goneFor); lookups.Load() > most {
		t.Errorf("looked up %d times, want %d at most", lookups.Load(), most)
	}
	made.Store(true)
	r.changed(named("none"))
	if _, err := r.get(t.Context(), "none"); err != nil {
		t.Errorf("after it was made: %v", err)
	}
	for i := range 3 * maxGone {
		made.Store(false)
		r.get(t.Context(), string(rune('a'+i%26))+time.Duration(i).String())
	}
	if len(r.gone) > maxGone {
		t.Errorf("%d names are remembered", len(r.gone))
	}
}

// TestRegistry_DatabaseAway: callers wait until it is back.
func TestRegistry_DatabaseAway(t *testing.T) {
	t.Parallel()
	var attempts atomic.Int32
	r := testRegistry(func(_ context.Context, name string) (*thing, error) {
		if attempts.Add(1) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		return &thing{name}, nil
	})
	if v, err := r.get(t.Context(), "x"); err != nil || v.name != "x" {
		t.Errorf("got %v, %v", v, err)
	}
}

// TestRegistry_Ends: a forgotten value is opened again, and so is one older than
// MaxAge; after close nothing is opened.
func TestRegistry_Ends(t *testing.T) {
	t.Parallel()
	var discarded, started atomic.Int32
	var r *registry[*thing]
	cfg := registryConfig[*thing]{
		Open: func(_ context.Context, name string) (*thing, error) {
			if name == "late" {
				r.close()
			}
			return &thing{name}, nil
		},
		Start: func(*thing) { started.Add(1) }, Discard: func(*thing) { discarded.Add(1) },
		MaxOpen: 2, ErrClosed: errMissing, Log: slog.New(slog.DiscardHandler),
	}
	r = newRegistry(cfg)
	first, _ := r.get(t.Context(), "a")
	if again, _ := r.get(t.Context(), "a"); again != first {
		t.Error("opened twice")
	}
	if !r.forget("a", first) || r.forget("a", first) {
		t.Error("it is not forgotten once")
	}
	if again, _ := r.get(t.Context(), "a"); again == first {
		t.Error("what was forgotten is still there")
	}
	r.get(t.Context(), "b")
	r.get(t.Context(), "c")
	if n := len(r.all()); n != 1 {
		t.Errorf("%d are open, want only the one past the bound", n)
	}
	if v, err := r.get(t.Context(), "late"); err != errMissing || v != nil || discarded.Load() != 1 || started.Load() != 4 {
		t.Errorf("opened while it was closed: %v, %v, %d discarded, %d started", v, err, discarded.Load(), started.Load())
	}
	cfg.MaxAge = time.Nanosecond
	aging := newRegistry(cfg)
	v, _ := aging.get(t.Context(), "a")
	if again, err := aging.get(t.Context(), "a"); again == v || err != nil {
		t.Errorf("after its age: %v, %v", again, err)
	}
}

// TestRegistry_ChangeDuringLookup: a look-up that began before a change is not
// shared with callers after it.
func TestRegistry_ChangeDuringLookup(t *testing.T) {
	t.Parallel()
	var made atomic.Bool
	began, release := make(chan struct{}), make(chan struct{})
	r := testRegistry(func(_ context.Context, name string) (*thing, error) {
		if made.Load() {
			return &thing{name}, nil
		}
		close(began)
		<-release
		return nil, errMissing
	})
	first := make(chan error, 1)
	go func() { _, err := r.get(t.Context(), "s\x00g"); first <- err }()
	<-began
	made.Store(true)
	r.changed(inFamily("s"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := r.get(ctx, "s\x00g"); err != nil { // while the first one still waits
		t.Errorf("after the change: %v", err)
	}
	close(release)
	<-first
	if _, err := r.get(t.Context(), "s\x00g"); err != nil {
		t.Errorf("after the first look-up: %v", err)
	}
}

// TestRegistry_StaleLookup: the result of a look-up from before a change is not
// kept after it.
func TestRegistry_StaleLookup(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	var lookups, discarded atomic.Int32
	r := testRegistry(func(context.Context, string) (*thing, error) {
		if lookups.Add(1) == 1 {
			close(began)
			<-release
			return &thing{"old"}, nil
		}
		return nil, errMissing
	})
	r.open.Discard = func(*thing) { discarded.Add(1) }
	first := make(chan error, 1)
	go func() { _, err := r.get(t.Context(), "s"); first <- err }()
	<-began
	if removed := r.remove(named("s")); len(removed) != 0 {
		t.Errorf("removed %v", removed)
	}
	close(release)
	if err := <-first; !errors.Is(err, errMissing) || discarded.Load() != 1 {
		t.Errorf("the look-up under way: %v, %d discarded", err, discarded.Load())
	}
	if v, err := r.get(t.Context(), "s"); !errors.Is(err, errMissing) {
		t.Errorf("after the change: %v, %v", v, err)
	}
}
