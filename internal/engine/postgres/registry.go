package postgres

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tidewire/tidewire/internal/pg"
)

// registry caches values that are opened by name, such as the writer of a
// stream. One caller opens a value, with a round trip to PostgreSQL, and other
// callers of that name wait for the result (the singleflight pattern); nobody
// waits for another name. While PostgreSQL is away, all callers wait for it.
// Safe for concurrent use.
type registry[V comparable] struct {
	open registryConfig[V]

	live    sync.Map // name to *entry[V]; written with mu
	opening singleflight.Group
	slots   chan struct{} // bounds how many are opened at a time
	waiting progress      // callers that wait for an open

	mu     sync.Mutex // guards what follows
	closed bool
	count  int
	gone   map[string]failure // names that do not exist, or cannot be opened
	under  map[*lookup]bool   // running look-ups
	change int                // counts all changes
	warned time.Time
}

// registryConfig configures a registry.
type registryConfig[V comparable] struct {
	// Open opens the value of a name. It is tried again while its error is
	// temporary.
	Open func(ctx context.Context, name string) (V, error)
	// Start is called once with the value that Open returned, and must not block.
	// Discard is called instead if the value is not entered: the registry was
	// closed, the look-up is stale, or another attempt was first. Both default to
	// nothing.
	Start, Discard func(V)
	// MaxAge is how long an entry is valid. Defaults to no limit.
	MaxAge time.Duration
	// MaxOpening bounds the concurrent calls of Open. Defaults to 8, because each call
	// may take a connection from the pool.
	MaxOpening int
	// MaxOpen bounds the entries. When there are more, all are dropped without
	// being closed, so it is only for values that need no close. Defaults to no
	// limit.
	MaxOpen int
	// ErrClosed is the error after close.
	ErrClosed error
	Log       *slog.Logger
}

type entry[V comparable] struct {
	value  V
	opened time.Time
}

// lookup is one call of Open.
type lookup struct {
	name  string
	stale bool // the name has changed since the look-up began
}

// failure is a cached error of Open.
type failure struct {
	err   error
	until time.Time
}

const (
	// openTimeout bounds one attempt to open a value.
	openTimeout = 10 * time.Second
	// maxOpening is the default of registryConfig.MaxOpening.
	maxOpening = 8
	// goneFor is how long a missing name is not looked up again (negative
	// caching), because clients may keep sending to it. It is short, because
	// another node may create it meanwhile.
	goneFor = 250 * time.Millisecond
	// maxGone bounds how many such names are cached.
	maxGone = 1000
	// warnEvery is how often the log says that PostgreSQL is away.
	warnEvery = 10 * time.Second
)

func newRegistry[V comparable](cfg registryConfig[V]) *registry[V] {
	return &registry[V]{open: cfg, slots: make(chan struct{}, cmp.Or(cfg.MaxOpening, maxOpening)), gone: make(map[string]failure), under: make(map[*lookup]bool)}
}

// get returns the open value of a name, or opens it. It waits while PostgreSQL is
// away, at most until ctx ends.
func (r *registry[V]) get(ctx context.Context, name string) (V, error) {
	if v, ok := r.peek(name); ok {
		return v, nil
	}
	name = strings.Clone(name) // it may be a part of a whole message
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

// peek returns the open value of a name, without waiting.
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

// once is one attempt, shared by all concurrent callers of that name. An attempt
// that may have begun before a change is not shared with callers after it.
func (r *registry[V]) once(ctx context.Context, name string) (v V, err error) {
	r.mu.Lock()
	key := strconv.Itoa(r.change) + "\x00" + name
	r.mu.Unlock()
	select {
	case result := <-r.opening.DoChan(key, func() (any, error) { return r.attempt(name) }):
		if result.Err != nil {
			return v, result.Err
		}
		return result.Val.(V), nil
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// attempt opens a value, unless it is open by now, or its failure is cached.
func (r *registry[V]) attempt(name string) (v V, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return v, ctx.Err()
	}
	for {
		if v, ok := r.peek(name); ok {
			return v, nil
		}
		l, err := r.begin(name)
		if err != nil {
			return v, err
		}
		found, err := r.open.Open(ctx, name)
		if err != nil {
			r.fail(l, err)
			return v, err
		}
		kept, err := r.enter(l, found)
		if kept != found && r.open.Discard != nil {
			r.open.Discard(found)
		}
		if err != errStale {
			return kept, err
		}
	}
}

// errStale: the result of a look-up may be outdated.
var errStale = errors.New("changed while it was looked up")

// begin begins a look-up, or returns the error that makes it needless.
func (r *registry[V]) begin(name string) (*lookup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, r.open.ErrClosed
	}
	if f, ok := r.gone[name]; ok {
		if time.Now().Before(f.until) {
			return nil, f.err
		}
		delete(r.gone, name)
	}
	l := &lookup{name: name}
	r.under[l] = true
	return l, nil
}

// fail caches a permanent error, unless the name has changed since the look-up
// began.
func (r *registry[V]) fail(l *lookup, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.under, l)
	switch now := time.Now(); {
	case !pg.Retryable(err):
		if len(r.gone) >= maxGone {
			clear(r.gone)
		}
		if !l.stale {
			r.gone[l.name] = failure{err, now.Add(goneFor)}
		}
	case now.Sub(r.warned) >= warnEvery:
		r.warned = now
		r.open.Log.Warn("PostgreSQL does not answer; the opening of streams, queues and event stores waits", "name", strings.ReplaceAll(l.name, "\x00", "/"), "error", err)
	}
}

// enter adds an opened value, and returns the value that is open now: v, or the value
// that another attempt entered meanwhile, or an error if the registry is closed or
// the look-up is stale.
func (r *registry[V]) enter(l *lookup, v V) (none V, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.under, l)
	if r.closed {
		return none, r.open.ErrClosed
	}
	if other, ok := r.peek(l.name); ok {
		return other, nil
	}
	if l.stale {
		return none, errStale
	}
	if r.open.MaxOpen > 0 && r.count >= r.open.MaxOpen {
		r.live.Clear()
		r.count = 0
	}
	if r.open.Start != nil {
		r.open.Start(v)
	}
	if _, was := r.live.Swap(l.name, &entry[V]{v, time.Now()}); !was {
		r.count++
	}
	return v, nil
}

// changed drops the cached failures of names whose values were just created, and
// marks running look-ups of them as stale. Later callers do not get results from
// before the change. Open values stay open.
func (r *registry[V]) changed(is func(name string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.gone, func(name string, _ failure) bool { return is(name) })
	for l := range r.under {
		l.stale = l.stale || is(l.name)
	}
	r.change++
}

// remove is changed for names that have another value now, or none: it also removes
// and returns their open values.
func (r *registry[V]) remove(is func(name string) bool) (removed []V) {
	r.changed(is)
	for name, e := range r.live.Range {
		if v := e.(*entry[V]).value; is(name.(string)) && r.forget(name.(string), v) {
			removed = append(removed, v)
		}
	}
	return removed
}

// forget removes v, if it is still the open value of the name, and reports
// whether it was.
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

// all returns all open values.
func (r *registry[V]) all() (open []V) {
	r.live.Range(func(_, e any) bool {
		open = append(open, e.(*entry[V]).value)
		return true
	})
	return open
}

// len returns the number of open values.
func (r *registry[V]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// close makes every later open fail with ErrClosed. Open values stay open.
func (r *registry[V]) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
