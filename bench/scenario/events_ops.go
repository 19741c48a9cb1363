package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/tidewire/tidewire/bench"
	"github.com/tidewire/tidewire/eventstore"
)

// eventsOp is an operation of the benchmark.
type eventsOp struct {
	describe string
	writes   bool // so that each cell begins with a fresh store
	batches  bool // calls differ by how many events they append
	conflict bool // calls differ by how many events are in the way
	wire     bool // by way of a serving node
	call     func(ctx context.Context, c *eventsCaller) error
}

// eventsOps are all but projectionlimits, whose callers go in step.
var eventsOps = map[string]eventsOp{
	"append":             {describe: "Append", writes: true, batches: true, call: callAppend},
	"appendif":           {describe: "AppendIf that holds; the whole history counts", writes: true, batches: true, call: callAppendIf},
	"appendif-conflict":  {describe: "AppendIf that fails", batches: true, conflict: true, call: callConflict},
	"appendif-websocket": {describe: "AppendIf that holds, by clients of a serving node", writes: true, batches: true, wire: true, call: callWire},
	"query":              {describe: "Query, 100 events", call: callQuery},
	"querystream":        {describe: "QueryStream, 100 events", call: callQueryStream},
	"project":            {describe: "Project, two projections over 100 events", call: callProject},
	"projectstream":      {describe: "ProjectStream, two projections over 100 events", call: callProjectStream},
}

// projectionLimits is the operation whose callers all overlap.
const projectionLimits = "projectionlimits"

// EventsOps are the names of the operations, in the order of a report.
var EventsOps = []string{
	"append", "appendif", "appendif-conflict", "appendif-websocket", "query", "querystream", "project", "projectstream", projectionLimits,
}

// eventsCaller is one of the callers of a cell. Of one goroutine.
type eventsCaller struct {
	store    *eventstore.Store
	wire     *bench.Wire // or nil
	number   int
	batch    int
	conflict int // how many events are in the way
	n        int // calls made
	random   *rand.Rand
	appended int // events of calls that succeeded
	events   []eventstore.Event
}

// fresh makes events of students that nobody has ever heard of.
func (c *eventsCaller) fresh(course string) (events []eventstore.Event, student string) {
	c.n++
	c.events = c.events[:0]
	for i := range c.batch {
		student = fmt.Sprintf("new-%d-%d-%d", c.number, c.n, i)
		c.events = append(c.events, enrolment(course, student))
	}
	return c.events, student
}

func callAppend(ctx context.Context, c *eventsCaller) error {
	events, _ := c.fresh(fmt.Sprintf("c%d", c.random.IntN(1000)))
	if _, err := c.store.Append(ctx, events...); err != nil {
		return err
	}
	c.appended += len(events)
	return nil
}

// callAppendIf: nobody may be enrolled twice. Of the condition's two tags one has
// past events, and one has none.
func callAppendIf(ctx context.Context, c *eventsCaller) error {
	course := fmt.Sprintf("past-%d", c.random.IntN(pastCourses))
	events, student := c.fresh(fmt.Sprintf("c%d", c.random.IntN(1000)))
	_, err := c.store.AppendIf(ctx, events, eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{
		{Types: []string{enrollmentCompleted}, Tags: []string{"course:" + course, "student:" + student}},
	}}})
	if err != nil {
		return err
	}
	c.appended += len(events)
	return nil
}

// callWire is callAppendIf as a message of JSON.
func callWire(_ context.Context, c *eventsCaller) error {
	course := fmt.Sprintf("past-%d", c.random.IntN(pastCourses))
	events, student := c.fresh(fmt.Sprintf("c%d", c.random.IntN(1000)))
	fields := fmt.Appendf(nil, `"type":"append","store":%q,"condition":{"query":{"items":[{"types":[%q],"tags":["course:%s","student:%s"]}]}},"events":[`,
		eventsStore, enrollmentCompleted, course, student)
	for i, e := range events {
		if i > 0 {
			fields = append(fields, ',')
		}
		fields = fmt.Appendf(fields, `{"type":%q,"tags":[%q,%q],"data":%s}`, e.Type, e.Tags[0], e.Tags[1], e.Data)
	}
	if _, err := c.wire.Ask(append(fields, ']')); err != nil {
		return err
	}
	c.appended += len(events)
	return nil
}

func callConflict(ctx context.Context, c *eventsCaller) error {
	events, _ := c.fresh("c0")
	_, err := c.store.AppendIf(ctx, events, eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{
		{Types: []string{enrollmentCompleted}, Tags: []string{fmt.Sprintf("course:conflict-%d", c.conflict)}},
	}}})
	if !errors.Is(err, eventstore.ErrConflict) {
		return fmt.Errorf("want a conflict, not %w", err)
	}
	return nil
}

func (c *eventsCaller) readQuery() eventstore.Query {
	return eventstore.Tagged(fmt.Sprintf("course:read-%d", c.random.IntN(readCourses)))
}

// wrongCount is what a read is told that did not return what is there.
func wrongCount(n int) error {
	if n != readEvents {
		return fmt.Errorf("%d events, want %d", n, readEvents)
	}
	return nil
}

func callQuery(ctx context.Context, c *eventsCaller) error {
	events, err := c.store.Query(ctx, c.readQuery(), eventstore.ReadOptions{})
	if err != nil {
		return err
	}
	return wrongCount(len(events))
}

func callQueryStream(ctx context.Context, c *eventsCaller) error {
	n := 0
	for _, err := range c.store.QueryStream(ctx, c.readQuery(), eventstore.ReadOptions{}) {
		if err != nil {
			return err
		}
		n++
	}
	return wrongCount(n)
}

// twoProjections count what a course has, and who came last.
func twoProjections(q eventstore.Query) (count *eventstore.Projection[int], last *eventstore.Projection[string]) {
	count = eventstore.Projector[int]{Query: q, Apply: func(n int, _ eventstore.Event) int { return n + 1 }}.Projection()
	last = eventstore.Projector[string]{
		Query: eventstore.Query{Items: []eventstore.Item{{Types: []string{enrollmentCompleted}, Tags: q.Items[0].Tags}}},
		Apply: func(_ string, e eventstore.Event) string { return e.Tags[1] },
	}.Projection()
	return count, last
}

func callProject(ctx context.Context, c *eventsCaller) error {
	count, last := twoProjections(c.readQuery())
	if _, err := c.store.Project(ctx, count, last); err != nil {
		return err
	}
	return wrongCount(count.State)
}

func callProjectStream(ctx context.Context, c *eventsCaller) error {
	count, last := twoProjections(c.readQuery())
	for _, err := range c.store.ProjectStream(ctx, count, last) {
		if err != nil {
			return err
		}
	}
	return wrongCount(count.State)
}

// projectTogether has all callers project at the same time, once: those that are
// let in go on when all others were let in or refused.
func projectTogether(ctx context.Context, callers []*eventsCaller, done func(caller int, err error)) {
	var arriving, running sync.WaitGroup
	arriving.Add(len(callers))
	for i, c := range callers {
		running.Go(func() {
			arrive := sync.OnceFunc(arriving.Done)
			p := eventstore.Projector[int]{Query: c.readQuery(), Apply: func(n int, _ eventstore.Event) int {
				if n == 0 {
					arrive()
					arriving.Wait()
				}
				return n + 1
			}}.Projection()
			_, err := c.store.Project(ctx, p)
			arrive()
			if err == nil {
				err = wrongCount(p.State)
			}
			done(i, err)
		})
	}
	running.Wait()
}
