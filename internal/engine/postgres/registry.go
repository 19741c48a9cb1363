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
	under  map[*lookup]bool   // the look-ups under way
	change int                // counts the changes, whatever they are of
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
	// MaxOpening bounds the calls of Open at a time. Defaults to 8, for such as take a
	// connection each, which others need.
	MaxOpening int
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

// lookup is one call of Open.
type lookup struct {
	name  string
	stale bool // there was a change of the name since it began
}

// failure is why something was not opened.
type failure struct {
	err   error
	until time.Time
}

const (
	// openTimeout bounds one attempt to open something.
	openTimeout = 10 * time.Second
	// maxOpening is the default of registryConfig.MaxOpening.
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
	return &registry[V]{open: cfg, slots: make(chan struct{}, cmp.Or(cfg.MaxOpening, maxOpening)), gone: make(map[string]failure), under: make(map[*lookup]bool)}
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

// once is one attempt, shared with all who want the same at that time. An attempt
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

// attempt opens something, unless that has just been done, or found to be in vain.
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

// errStale: what was looked up may not be so any more.
var errStale = errors.New("changed while it was looked up")

// begin begins a look-up, or returns why there need not be one.
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

// fail remembers an error that stays, unless what it is about has changed since.
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
		r.open.Log.Warn("PostgreSQL does not answer; what is to be opened waits", "name", strings.ReplaceAll(l.name, "\x00", "/"), "error", err)
	}
}

// enter adds what was opened, and returns what is open now: nothing if the registry
// is closed or the look-up is stale, or what another attempt entered in the meantime.
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

// changed has names looked up anew that were not there: what they stand for was
// just made. Callers after it are not told what was so before. Open ones stay open.
func (r *registry[V]) changed(is func(name string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.gone, func(name string, _ failure) bool { return is(name) })
	for l := range r.under {
		l.stale = l.stale || is(l.name)
	}
	r.change++
}

// remove is changed for what stands for something else now, or for nothing: what is
// open by those names is removed and returned.
func (r *registry[V]) remove(is func(name string) bool) (removed []V) {
	r.changed(is)
	for name, e := range r.live.Range {
		if v := e.(*entry[V]).value; is(name.(string)) && r.forget(name.(string), v) {
			removed = append(removed, v)
		}
	}
	return removed
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

// len is how many are open.
func (r *registry[V]) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// close has everything that is opened from now on refused. Open ones stay open.
func (r *registry[V]) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
