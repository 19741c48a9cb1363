package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tidewire/tidewire/internal/pg"
)

// registry keeps what is opened by name, such as the writer of a stream. One
// caller opens it, with a round trip to PostgreSQL, and the others of that name
// wait for that (the singleflight pattern); nobody waits for another name. While
// PostgreSQL is away, all wait for it. Its methods may be called from several
// goroutines.
type registry[V comparable] struct {
	open registryConfig[V]

	live    sync.Map // name to *entry[V]; written with mu
	opening singleflight.Group
	slots   chan struct{} // bounds how many are opened at a time
	waiting progress      // of callers that wait for something to be opened

	mu     sync.Mutex // guards what follows
	closed bool
	count  int
	gone   map[string]failure // what is not there, or cannot be opened
	change int                // counts calls of changed
	warned time.Time
}

// registryConfig says how a registry opens.
type registryConfig[V comparable] struct {
	// Open looks up what a name stands for. It is tried again while its error is
	// one that passes.
	Open func(ctx context.Context, name string) (V, error)
	// Start is called once with what Open returned, and must not block; or Discard
	// is, if the registry was closed meanwhile. Both default to nothing.
	Start, Discard func(V)
	// MaxAge is for how long an entry counts. Defaults to for ever.
	MaxAge time.Duration
	// MaxOpen bounds the entries, of which all are dropped when there are more:
	// only for what needs no end. Defaults to no bound.
	MaxOpen int
	// ErrClosed is what callers get after close.
	ErrClosed error
	Log       *slog.Logger
}

type entry[V comparable] struct {
	value  V
	opened time.Time
}

// failure is why something was not opened.
type failure struct {
	err   error
	until time.Time
}

const (
	// openTimeout bounds one attempt to open something.
	openTimeout = 10 * time.Second
	// maxOpening bounds the attempts at a time, which take connections that others
	// need.
	maxOpening = 8
	// goneFor is for how long a name is not looked up again that is not there: a
	// client may go on sending to it. Another node may make it meanwhile.
	goneFor = 250 * time.Millisecond
	// maxGone bounds how many such names are remembered.
	maxGone = 1000
	// warnEvery is how often the log says that PostgreSQL is away.
	warnEvery = 10 * time.Second
)

func newRegistry[V comparable](cfg registryConfig[V]) *registry[V] {
	return &registry[V]{open: cfg, slots: make(chan struct{}, maxOpening), gone: make(map[string]failure)}
}

// get returns what is open by that name, or opens it. It waits while PostgreSQL is
// away, at most until ctx ends.
func (r *registry[V]) get(ctx context.Context, name string) (V, error) {
	if v, ok := r.peek(name); ok {
		return v, nil
	}
	r.waiting.begin()
	defer r.waiting.end()
	for failed := 0; ; failed++ {
		v, err := r.once(ctx, name)
		if err == nil || !pg.Retryable(err) || ctx.Err() != nil {
			return v, err
		}
		if err := pg.Backoff(ctx, failed); err != nil {
			return v, err
		}
	}
}

// peek returns what is open by that name, without waiting.
func (r *registry[V]) peek(name string) (v V, ok bool) {
	found, ok := r.live.Load(name)
	if !ok {
		return v, false
	}
	e := found.(*entry[V])
	if r.open.MaxAge > 0 && time.Since(e.opened) >= r.open.MaxAge {
		return v, false
	}
	return e.value, true
}

// once is one attempt, shared with all who want the same at that time.
func (r *registry[V]) once(ctx context.Context, name string) (v V, err error) {
	select {
	case result := <-r.opening.DoChan(name, func() (any, error) { return r.attempt(name) }):
		if result.Err != nil {
			return v, result.Err
		}
		return result.Val.(V), nil
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// attempt opens something, unless that has just been done, or found to be in vain.
func (r *registry[V]) attempt(name string) (v V, err error) {
	if v, ok := r.peek(name); ok {
		return v, nil
	}
	change, err := r.refused(name)
	if err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return v, ctx.Err()
	}
	if v, err = r.open.Open(ctx, name); err != nil {
		r.fail(name, err, change)
		return v, err
	}
	kept, err := r.enter(name, v)
	if kept != v && r.open.Discard != nil {
		r.open.Discard(v)
	}
	return kept, err
}

// refused returns why it need not be tried.
func (r *registry[V]) refused(name string) (change int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, r.open.ErrClosed
	}
	if f, ok := r.gone[name]; ok {
		if time.Now().Before(f.until) {
			return 0, f.err
		}
		delete(r.gone, name)
	}
	return r.change, nil
}

// fail remembers an error that stays, unless what it is about has changed since.
func (r *registry[V]) fail(name string, err error, change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := time.Now(); {
	case !pg.Retryable(err):
		if len(r.gone) >= maxGone {
			clear(r.gone)
		}
		if change == r.change {
			r.gone[name] = failure{err, now.Add(goneFor)}
		}
	case now.Sub(r.warned) >= warnEvery:
		r.warned = now
		r.open.Log.Warn("PostgreSQL does not answer; what is to be opened waits", "name", strings.ReplaceAll(name, "\x00", "/"), "error", err)
	}
}

// enter adds what was opened, and returns what is open now: nothing if the registry
// is closed, or what another attempt entered in the meantime.
func (r *registry[V]) enter(name string, v V) (none V, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return none, r.open.ErrClosed
	}
	if other, ok := r.peek(name); ok {
		return other, nil
	}
	if r.open.MaxOpen > 0 && r.count >= r.open.MaxOpen {
		r.live.Clear()
		r.count = 0
	}
	if r.open.Start != nil {
		r.open.Start(v)
	}
	if _, was := r.live.Swap(name, &entry[V]{v, time.Now()}); !was {
		r.count++
	}
	return v, nil
}

// changed has a name looked up anew that was not there: it was just made.
func (r *registry[V]) changed(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.gone, name)
	r.change++
	r.opening.Forget(name) // an attempt may have begun before
}

// changedAll is changed for all names.
func (r *registry[V]) changedAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.gone {
		r.opening.Forget(name)
	}
	clear(r.gone)
	r.change++
}

// forget removes what is gone, unless it is another by now. It reports whether it
// was there.
func (r *registry[V]) forget(name string, v V) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.live.Load(name)
	if !ok || found.(*entry[V]).value != v {
		return false
	}
	r.live.Delete(name)
	r.count--
	return true
}

// all returns what is open.
func (r *registry[V]) all() (open []V) {
	r.live.Range(func(_, e any) bool {
		open = append(open, e.(*entry[V]).value)
		return true
	})
	return open
}

// close has everything that is opened from now on refused. What is open stays.
func (r *registry[V]) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
