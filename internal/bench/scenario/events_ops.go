package scenario

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/wire"
)

// eventsOp is an operation of the benchmark.
type eventsOp struct {
	describe string
	writes   bool // each cell begins with a fresh store
	batches  bool // cells differ in the number of events in an append
	conflict bool // cells differ in the number of conflicting events
	wire     bool // through a serving node
	call     func(ctx context.Context, c *eventsCaller) error
}

// eventsOps has all operations except projectionlimits, whose callers run in lockstep.
var eventsOps = map[string]eventsOp{
	"append":             {describe: "Append", writes: true, batches: true, call: callAppend},
	"appendif":           {describe: "AppendIf that succeeds; its condition covers the whole history", writes: true, batches: true, call: callAppendIf},
	"appendif-conflict":  {describe: "AppendIf that fails", batches: true, conflict: true, call: callConflict},
	"appendif-websocket": {describe: "AppendIf that succeeds, by clients of a serving node", writes: true, batches: true, wire: true, call: callWire},
	"query":              {describe: "Query, 100 events", call: callQuery},
	"querystream":        {describe: "QueryStream, 100 events", call: callQueryStream},
	"project":            {describe: "Project, two projections over 100 events", call: callProject},
	"projectstream":      {describe: "ProjectStream, two projections over 100 events", call: callProjectStream},
}

// projectionLimits is the operation whose callers all run at the same time.
const projectionLimits = "projectionlimits"

// EventsOps are the names of the operations, in the order of a report.
var EventsOps = []string{
	"append", "appendif", "appendif-conflict", "appendif-websocket", "query", "querystream", "project", "projectstream", projectionLimits,
}

// eventLog has the methods that callers call, of an eventstore.Store.
type eventLog interface {
	Append(ctx context.Context, events ...eventstore.Event) (eventstore.Appended, error)
	AppendIf(ctx context.Context, events []eventstore.Event, condition eventstore.Condition) (eventstore.Appended, error)
	Query(ctx context.Context, query eventstore.Query, options eventstore.ReadOptions) ([]eventstore.Event, error)
	QueryStream(ctx context.Context, query eventstore.Query, options eventstore.ReadOptions) iter.Seq2[eventstore.Event, error]
	Project(ctx context.Context, projections ...eventstore.Projected) (eventstore.Condition, error)
	ProjectStream(ctx context.Context, projections ...eventstore.Projected) iter.Seq2[eventstore.Event, error]
}

// eventsCaller is one of the callers of a cell, used by one goroutine.
type eventsCaller struct {
	store    eventLog
	wire     *bench.Wire // or nil
	number   int
	batch    int
	conflict int // number of conflicting events
	n        int // calls made
	random   *rand.Rand
	appended int   // events in calls that succeeded
	last     int64 // position of the last of them
	events   []eventstore.Event
}

// fresh returns events of new students.
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
	at, err := c.store.Append(ctx, events...)
	if err != nil {
		return err
	}
	return c.stored(at.First, at.Last)
}

// stored counts the events of an acknowledged append. Their positions must be
// after all earlier ones of this caller.
func (c *eventsCaller) stored(first, last int64) error {
	c.appended += len(c.events)
	if n := int(last - first + 1); n != len(c.events) {
		return fmt.Errorf("%d positions for %d events", n, len(c.events))
	}
	if first <= c.last {
		return fmt.Errorf("an event at position %d, after one at %d", first, c.last)
	}
	c.last = last
	return nil
}

// callAppendIf appends on the condition that no student is enrolled twice. One of
// the condition's two tags has past events, and the other has none.
func callAppendIf(ctx context.Context, c *eventsCaller) error {
	course := fmt.Sprintf("past-%d", c.random.IntN(pastCourses))
	events, student := c.fresh(fmt.Sprintf("c%d", c.random.IntN(1000)))
	at, err := c.store.AppendIf(ctx, events, eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{
		{Types: []string{enrollmentCompleted}, Tags: []string{"course:" + course, "student:" + student}},
	}}})
	if err != nil {
		return err
	}
	return c.stored(at.First, at.Last)
}

// callWire is callAppendIf as a message to a node.
func callWire(_ context.Context, c *eventsCaller) error {
	course := fmt.Sprintf("past-%d", c.random.IntN(pastCourses))
	events, student := c.fresh(fmt.Sprintf("c%d", c.random.IntN(1000)))
	_, err := c.wire.Await(func(out *wire.Writer) {
		text(out, "type", "append")
		text(out, "store", eventsStore)
		out.Name("condition")
		out.Open()
		out.Name("query")
		out.Open()
		out.Name("items")
		out.OpenList()
		out.Next()
		out.Open()
		texts(out, "types", enrollmentCompleted)
		texts(out, "tags", "course:"+course, "student:"+student)
		out.Close()
		out.CloseList()
		out.Close()
		out.Close()
		out.Name("events")
		out.OpenList()
		for _, e := range events {
			out.Next()
			out.Open()
			text(out, "type", e.Type)
			texts(out, "tags", e.Tags...)
			out.Name("data")
			out.JSON(e.Data)
			out.Close()
		}
		out.CloseList()
	})
	if err != nil {
		return err
	}
	c.appended += len(events)
	return nil
}

func texts(out *wire.Writer, name string, values ...string) {
	out.Name(name)
	out.OpenList()
	for _, v := range values {
		out.Next()
		out.Text(v)
	}
	out.CloseList()
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

// projectRound makes all callers project once, and counts the round as a whole: part
// of a round would have another share of rejections.
func projectRound(ctx context.Context, callers []*eventsCaller, tally func() *tallyEvents) {
	type outcome struct {
		took time.Duration
		err  error
	}
	outcomes := make([]outcome, len(callers))
	began := time.Now()
	projectTogether(ctx, callers, func(caller int, err error) { outcomes[caller] = outcome{time.Since(began), err} })
	counted := tally()
	for _, o := range outcomes {
		counted.add(o.took, o.err)
	}
}

// projectTogether makes all callers project once at the same time: those that
// are admitted wait until all others were admitted or rejected.
func projectTogether(ctx context.Context, callers []*eventsCaller, done func(caller int, err error)) {
	var arriving, running sync.WaitGroup
	arriving.Add(len(callers))
	for i, c := range callers {
		running.Go(func() {
			arrive := sync.OnceFunc(arriving.Done)
			_, query := c.readQuery()
			p := eventstore.Projector[int]{Query: query, Apply: func(n int, _ eventstore.Event) int {
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
