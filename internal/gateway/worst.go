package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
)

const (
	// worstEvery is how often streams and queues are looked at while somebody asks for the worst of them: worstStep of each, in turn.
	worstEvery = 5 * time.Second
	worstStep  = 20
	// worstGroups is how many groups of a stream are looked at, and worstNames how old the lists of names may be.
	worstGroups  = 100
	worstNames   = 15 * time.Second
	worstTimeout = 2 * time.Second
)

// worstGroup is the group of a stream that has the most still to read.
type worstGroup struct {
	Stream string `json:"stream"`
	Group  string `json:"group"`
	Lag    int64  `json:"lag"`
}

// worstQueue is a queue with what waits in it.
type worstQueue struct {
	Queue  string `json:"queue"`
	Ready  int64  `json:"ready"`
	Dead   int64  `json:"dead"`
	Oldest int64  `json:"oldest_ms"`
	Paused bool   `json:"paused"`
}

// worstLook knows which groups have the most to read, and which queues wait the longest. It asks the store only when somebody asks it, and a
// bounded number of questions in some seconds, however many ask. Safe for concurrent use.
type worstLook struct {
	lag atomic.Int64 // of the worst group
	at  atomic.Int64 // of the last look, in nanoseconds

	mu      sync.Mutex // held while it asks the store
	listed  time.Time
	streams turns
	queues  turns
	groups  map[string]worstGroup // by stream
	waiting map[string]worstQueue

	state  sync.Mutex // guards the fields below
	ranked []worstGroup
	longer []worstQueue
}

// turns are names, some of which are looked at in turn.
type turns struct {
	names []string
	next  int
}

// take returns the next names, and one that is always looked at.
func (t *turns) take(always string) (some []string) {
	for range min(worstStep, len(t.names)) {
		t.next %= len(t.names)
		some = append(some, t.names[t.next])
		t.next++
	}
	if always != "" && !slices.Contains(some, always) {
		some = append(some, always)
	}
	return some
}

// read is the lag of the worst group for the plot, -1 if nobody has asked lately.
func (l *worstLook) read() int64 {
	if time.Since(time.Unix(0, l.at.Load())) > 2*worstEvery {
		return -1
	}
	return l.lag.Load()
}

// look returns the worst that the caller may see. One caller asks the store if it is time, others do not wait for it.
func (l *worstLook) look(ctx context.Context, kept engine.Engine, caller *auth.Caller) (group *worstGroup, queue *worstQueue) {
	if l.mu.TryLock() {
		if time.Since(time.Unix(0, l.at.Load())) >= worstEvery {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worstTimeout) // the answer is for others, too
			l.ask(ctx, kept)
			cancel()
		}
		l.mu.Unlock()
	}
	l.state.Lock()
	defer l.state.Unlock()
	for _, g := range l.ranked {
		if caller == nil || caller.Granted("read", auth.Stream, g.Stream) {
			group = &g
			break
		}
	}
	for _, q := range l.longer {
		if caller == nil || caller.Granted("inspect", auth.Queue, q.Queue) {
			queue = &q
			break
		}
	}
	return group, queue
}

// ask looks at some streams and queues. What cannot be read is left out until the next turn.
func (l *worstLook) ask(ctx context.Context, kept engine.Engine) {
	if l.groups == nil {
		l.groups, l.waiting = make(map[string]worstGroup), make(map[string]worstQueue)
	}
	if time.Since(l.listed) >= worstNames {
		l.list(ctx, kept)
	}
	l.state.Lock()
	worst, longest := "", ""
	if len(l.ranked) > 0 {
		worst = l.ranked[0].Stream
	}
	if len(l.longer) > 0 {
		longest = l.longer[0].Queue
	}
	l.state.Unlock()
	for _, name := range l.streams.take(worst) {
		delete(l.groups, name)
		groups, err := kept.Streams.Groups(ctx, name, "", worstGroups)
		if err != nil || len(groups) == 0 {
			continue
		}
		g := slices.MaxFunc(groups, func(a, b engine.GroupInfo) int { return cmp.Compare(a.Lag, b.Lag) })
		l.groups[name] = worstGroup{name, g.Name, g.Lag}
	}
	for _, name := range l.queues.take(longest) {
		delete(l.waiting, name)
		if q, err := kept.Queues.Stats(ctx, name); err == nil {
			l.waiting[name] = worstQueue{name, q.Ready, q.Dead, q.Oldest, q.Paused}
		}
	}
	l.rank()
	l.at.Store(time.Now().UnixNano())
}

// list reads the names that there are. Names that are gone are forgotten.
func (l *worstLook) list(ctx context.Context, kept engine.Engine) {
	if kept.Streams != nil {
		all, err := kept.Streams.List(ctx)
		if err != nil {
			return
		}
		l.streams.names = nil
		for _, s := range all {
			if !engine.Reserved(s.Name) {
				l.streams.names = append(l.streams.names, s.Name)
			}
		}
	}
	if kept.Queues != nil {
		all, err := kept.Queues.List(ctx)
		if err != nil {
			return
		}
		l.queues.names = slices.DeleteFunc(all, engine.Reserved)
	}
	l.listed = time.Now()
	keep(l.groups, l.streams.names)
	keep(l.waiting, l.queues.names)
}

func keep[V any](known map[string]V, names []string) {
	are := make(map[string]bool, len(names))
	for _, name := range names {
		are[name] = true
	}
	maps.DeleteFunc(known, func(name string, _ V) bool { return !are[name] })
}

// rank sorts what is known, the worst first.
func (l *worstLook) rank() {
	ranked := slices.SortedFunc(maps.Values(l.groups), func(a, b worstGroup) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), cmp.Compare(a.Stream, b.Stream))
	})
	longer := slices.SortedFunc(maps.Values(l.waiting), func(a, b worstQueue) int {
		return cmp.Or(cmp.Compare(b.Oldest, a.Oldest), cmp.Compare(b.Dead, a.Dead), cmp.Compare(a.Queue, b.Queue))
	})
	l.state.Lock()
	l.ranked, l.longer = ranked, longer
	l.state.Unlock()
	lag := int64(0)
	if len(ranked) > 0 {
		lag = ranked[0].Lag
	}
	l.lag.Store(lag)
}
