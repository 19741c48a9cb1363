package scenario

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/eventstore"
)

// readQuery returns a query for the events of a course, and the course.
func (c *eventsCaller) readQuery() (*readCourse, eventstore.Query) {
	course := &readable[c.random.IntN(readCourses)]
	return course, eventstore.Tagged(course.tag)
}

// wrongCount returns an error for a read that returned a wrong number of events.
func wrongCount(n int) error {
	if n != readEvents {
		return fmt.Errorf("%d events, want %d", n, readEvents)
	}
	return nil
}

// reading checks the events of a course, one after the other.
type reading struct {
	course *readCourse
	count  int
	last   int64
}

// next checks one event: it belongs to the course, and comes after the previous one.
func (r *reading) next(e *eventstore.Event) error {
	if e.Position <= r.last {
		return fmt.Errorf("an event at position %d, after one at %d", e.Position, r.last)
	}
	if len(e.Tags) == 0 || e.Tags[0] != r.course.tag {
		return fmt.Errorf("an event of %v, want one of %s", e.Tags, r.course.tag)
	}
	r.count, r.last = r.count+1, e.Position
	return nil
}

func callQuery(ctx context.Context, c *eventsCaller) error {
	course, query := c.readQuery()
	events, err := c.store.Query(ctx, query, eventstore.ReadOptions{})
	if err != nil {
		return err
	}
	r := reading{course: course}
	for i := range events {
		if err := r.next(&events[i]); err != nil {
			return err
		}
	}
	return wrongCount(r.count)
}

func callQueryStream(ctx context.Context, c *eventsCaller) error {
	course, query := c.readQuery()
	r := reading{course: course}
	for e, err := range c.store.QueryStream(ctx, query, eventstore.ReadOptions{}) {
		if err == nil {
			err = r.next(&e)
		}
		if err != nil {
			return err
		}
	}
	return wrongCount(r.count)
}

// twoProjections count the events of a course, and find the last student.
type twoProjections struct {
	course *readCourse
	count  *eventstore.Projection[int]
	last   *eventstore.Projection[string]
}

func newTwoProjections(course *readCourse, q eventstore.Query) twoProjections {
	return twoProjections{
		course: course,
		count:  eventstore.Projector[int]{Query: q, Apply: func(n int, _ eventstore.Event) int { return n + 1 }}.Projection(),
		last: eventstore.Projector[string]{
			Query: eventstore.Query{Items: []eventstore.Item{{Types: []string{enrollmentCompleted}, Tags: q.Items[0].Tags}}},
			Apply: func(_ string, e eventstore.Event) string { return e.Tags[1] },
		}.Projection(),
	}
}

// check compares both projections with the loaded events.
func (p twoProjections) check() error {
	if p.last.State != p.course.last {
		return fmt.Errorf("%s came last, want %s", p.last.State, p.course.last)
	}
	return wrongCount(p.count.State)
}

func callProject(ctx context.Context, c *eventsCaller) error {
	p := newTwoProjections(c.readQuery())
	if _, err := c.store.Project(ctx, p.count, p.last); err != nil {
		return err
	}
	return p.check()
}

func callProjectStream(ctx context.Context, c *eventsCaller) error {
	p := newTwoProjections(c.readQuery())
	for _, err := range c.store.ProjectStream(ctx, p.count, p.last) {
		if err != nil {
			return err
		}
	}
	return p.check()
}
