package eventstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

// op is a random append of a test. Its events contain it as their data, so that the
// store itself records the condition of each append.
type op struct {
	Name        string
	Events      int
	Index       int // of the event that holds it
	Conditional bool
	Condition   eventstore.Condition
	Request     eventstore.RequestID // whose request it is, or none
}

// outcome is the answer to the caller of an op.
type outcome struct {
	Op        op
	Positions []int64
	Conflict  int64 // position of the event that it was told of, or 0
	Type      string
	Err       string
}

var (
	someTags  = []string{"a:1", "a:2", `b:"quoted"`, `b:\slash`, "c:grün"}
	someTypes = []string{"Opened", "Closed", "Moved"}
)

func someOf(random *rand.Rand, from []string, least, most int) []string {
	n := least + random.IntN(most-least+1)
	var chosen []string
	for _, i := range random.Perm(len(from))[:n] {
		chosen = append(chosen, from[i])
	}
	return chosen
}

func randomQuery(random *rand.Rand) eventstore.Query {
	var q eventstore.Query
	for range 1 + random.IntN(2) {
		item := eventstore.Item{Types: someOf(random, someTypes, 0, 2), Tags: someOf(random, someTags, 0, 3)}
		if len(item.Types)+len(item.Tags) == 0 && random.IntN(4) > 0 {
			item.Tags = someTags[:1]
		}
		q.Items = append(q.Items, item)
	}
	return q
}

// randomOp returns an append of some events, most of which depend on what is
// after a position close to the end.
func randomOp(random *rand.Rand, name string, seen int64) (op, []eventstore.Event) {
	o := op{Name: name, Events: 1 + random.IntN(3)}
	if random.IntN(5) > 0 {
		o.Conditional = true
		o.Condition = eventstore.Condition{FailIfEventsMatch: randomQuery(random)}
		if random.IntN(8) > 0 {
			o.Condition.After = min(seen, max(0, seen-int64(random.IntN(20))+int64(random.IntN(15))))
		}
	}
	events := make([]eventstore.Event, o.Events)
	withIDs := random.IntN(2) == 0
	if random.IntN(3) == 0 {
		o.Request = requestOf(name)
	}
	for i := range events {
		o.Index = i
		data, _ := json.Marshal(o)
		events[i] = eventstore.Event{
			Type: someTypes[random.IntN(len(someTypes))], Tags: someOf(random, someTags, 0, 3), Data: data, JSON: true,
		}
		if withIDs {
			events[i].ID = fmt.Sprint(name, "/", i)
		}
	}
	return o, events
}

// requestOf is that of an op called "caller n": its nth request.
func requestOf(name string) (p eventstore.RequestID) {
	at := strings.LastIndexByte(name, ' ')
	p.Client = name[:at]
	p.Sequence, _ = strconv.ParseInt(name[at+1:], 10, 64)
	return p
}

// racers have callers append to Stores of one database, and note the outcomes.
type racers struct {
	ledger
	stores   []*eventstore.Store
	answered atomic.Int64 // the highest position
}

// race has callers append until done. Some appends with ids or a client are made twice, also to another Store, or first by a
// caller who hardly waits: that is one append.
func (r *racers) race(ctx context.Context, name string, seed uint64, callers, calls int) {
	var racing sync.WaitGroup
	for c := range callers {
		racing.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(c)))
			here, there := r.stores[c%len(r.stores)], r.stores[(c+1)%len(r.stores)]
			seen := int64(0)
			for n := 0; n < calls && ctx.Err() == nil; n++ {
				o, events := randomOp(random, fmt.Sprint(name, " ", c, " ", n), seen)
				repeatable := events[0].ID != "" || o.Request.Client != ""
				hasty := repeatable && random.IntN(4) == 0
				before := r.answered.Load()
				if hasty {
					patience, end := context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
					given := slices.Clone(events)
					for i := range given {
						given[i].Tags = slices.Clone(given[i].Tags)
					}
					attempt(patience, there, o, given)
					end()
					for _, e := range given { // they are the caller's again, whether it was answered or not
						for i := range e.Tags {
							e.Tags[i] = "changed"
						}
					}
				}
				got := attempt(ctx, here, o, events)
				if repeatable && random.IntN(3) == 0 {
					if again := attempt(ctx, there, o, events); again.Err == "" && got.Err == "" && !sameOutcome(got, again) {
						again.Err = fmt.Sprintf("answered %+v and then %+v", got, again)
						got = again
					}
				}
				if len(got.Positions) > 0 {
					if seen = max(seen, got.Positions[0]); got.Positions[0] <= before {
						got.Err = fmt.Sprintf("answered %d, after %d was answered", got.Positions[0], before)
					}
				}
				seen = max(seen, got.Conflict)
				for high := r.answered.Load(); high < seen && !r.answered.CompareAndSwap(high, seen); high = r.answered.Load() {
				}
				if got.Err == "" || ctx.Err() == nil { // an abandoned append has no outcome
					r.note(got)
				}
			}
		})
	}
	racing.Wait()
}

// sameOutcome compares a repetition with the first answer. A rejected append is checked
// again when it is repeated, but the first event that conflicts stays the same.
func sameOutcome(a, b outcome) bool {
	return slices.Equal(a.Positions, b.Positions) && a.Conflict == b.Conflict
}

func attempt(ctx context.Context, s *eventstore.Store, o op, events []eventstore.Event) outcome {
	got := outcome{Op: o}
	var err error
	switch {
	case o.Conditional && o.Request.Client != "":
		got.Positions, err = allOf(s.AppendIfAs(ctx, o.Request, events, o.Condition))
	case o.Conditional:
		got.Positions, err = allOf(s.AppendIf(ctx, events, o.Condition))
	case o.Request.Client != "":
		got.Positions, err = allOf(s.AppendAs(ctx, o.Request, events...))
	default:
		got.Positions, err = allOf(s.Append(ctx, events...))
	}
	var conflict *eventstore.ConflictError
	switch {
	case errors.As(err, &conflict):
		got.Conflict, got.Type = conflict.Position, conflict.Type
	case err != nil:
		got.Err = err.Error()
	}
	return got
}

// ledger collects outcomes.
type ledger struct {
	mu       sync.Mutex
	outcomes []outcome
	awaited  int // more outcomes to come before reached is closed
	reached  chan struct{}
}

func (l *ledger) note(o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outcomes = append(l.outcomes, o)
	if l.awaited--; l.awaited == 0 {
		close(l.reached)
	}
}

// more returns a channel that is closed after that many more outcomes.
func (l *ledger) more(outcomes int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaited, l.reached = outcomes, make(chan struct{})
	return l.reached
}

// stored is an event that was read from PostgreSQL directly, without the Store.
type stored struct {
	position int64
	kind     string
	tags     []string
	op       op
}

func readStored(t *testing.T, pool *pgxpool.Pool) []stored {
	t.Helper()
	rows, err := pool.Query(t.Context(), `SELECT position, type, tags, data FROM tidewire.events_1 ORDER BY position`)
	if err != nil {
		t.Fatal(err)
	}
	var all []stored
	for rows.Next() {
		var s stored
		var data []byte
		if err := rows.Scan(&s.position, &s.kind, &s.tags, &data); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &s.op); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return all
}

// firstMatch is the plain way to evaluate a condition: the first event that
// matches among those after After.
func firstMatch(log []stored, c eventstore.Condition) *stored {
	for i := range log {
		if log[i].position > c.After && plainMatch(c.FailIfEventsMatch, log[i].kind, log[i].tags) {
			return &log[i]
		}
	}
	return nil
}

func plainMatch(q eventstore.Query, kind string, tags []string) bool {
	matched := len(q.Items) == 0
	for _, item := range q.Items {
		ofType := len(item.Types) == 0
		for _, name := range item.Types {
			ofType = ofType || name == kind
		}
		tagged := true
		for _, want := range item.Tags {
			has := false
			for _, tag := range tags {
				has = has || tag == want
			}
			tagged = tagged && has
		}
		matched = matched || ofType && tagged
	}
	return matched
}

// check replays the log one append at a time: each must be there as a whole
// and have met its condition at its place; each answered position must hold
// that event, and each rejection name the first event that it conflicts with.
func (l *ledger) check(t *testing.T, log []stored) {
	t.Helper()
	at := make(map[string]int) // of the first event of each op
	for i := 0; i < len(log); {
		o := log[i].op
		if _, twice := at[o.Name]; twice {
			t.Errorf("%s is stored twice", o.Name)
		}
		at[o.Name] = i
		for n := range o.Events {
			if i+n >= len(log) || log[i+n].op.Name != o.Name || log[i+n].op.Index != n || log[i+n].position != log[i].position+int64(n) {
				t.Fatalf("%s is not stored as a whole at %d", o.Name, log[i].position)
			}
		}
		if o.Conditional {
			if broken := firstMatch(log[:i], o.Condition); broken != nil {
				t.Errorf("%s at %d was accepted, its condition %+v failed at %d", o.Name, log[i].position, o.Condition, broken.position)
			}
		}
		i += o.Events
	}
	accepted, rejected := 0, 0
	for _, got := range l.outcomes {
		i, isStored := at[got.Op.Name]
		switch {
		case got.Err != "":
			t.Errorf("%s: %s", got.Op.Name, got.Err)
		case got.Conflict > 0:
			rejected++
			first := firstMatch(log, got.Op.Condition)
			if isStored || first == nil || first.position != got.Conflict || first.kind != got.Type {
				t.Errorf("%s was rejected for %q at %d; stored %t, first match %+v", got.Op.Name, got.Type, got.Conflict, isStored, first)
			}
		default:
			accepted++
			if !isStored || log[i].position != got.Positions[0] || len(got.Positions) != got.Op.Events {
				t.Errorf("%s was answered %v, stored is %t", got.Op.Name, got.Positions, isStored)
			}
		}
	}
	if accepted == 0 || rejected == 0 {
		t.Errorf("%d accepted, %d rejected: this tests nothing", accepted, rejected)
	}
	t.Logf("%d events, %d appends accepted, %d rejected", len(log), accepted, rejected)
}
