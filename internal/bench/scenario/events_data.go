package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

// eventsStore is the event store of the benchmark, created again for each load.
const eventsStore = "tidewire-bench"

// Types of events of the course-enrolment domain.
const (
	courseOffered       = "CourseOffered"
	studentRegistered   = "StudentRegistered"
	enrollmentCompleted = "EnrollmentCompleted"
)

// dataset describes the events that a store holds before an operation is measured.
type dataset struct {
	courses, students, enrolments int
}

func (d dataset) size() int { return d.courses + d.students + d.enrolments }

// datasets by name. Large has a million events, huge ten million.
var datasets = map[string]dataset{
	"tiny":   {5, 10, 20},
	"small":  {500, 5_000, 25_000},
	"medium": {1_000, 10_000, 50_000},
	"large":  {10_000, 100_000, 890_000},
	"huge":   {100_000, 1_000_000, 8_900_000},
}

const (
	// readCourses is the number of courses that reads choose from, with
	// readEvents events each.
	readCourses = 4
	readEvents  = 100
	// pastCourses is the same for conditions with events that match partly.
	pastCourses = 8
	// loadBatch is the number of events in one append while loading.
	loadBatch = 2_000
)

// enrolment returns an event of a student and a course.
func enrolment(course, student string) eventstore.Event {
	return eventstore.Event{
		Type: enrollmentCompleted, Tags: []string{"course:" + course, "student:" + student}, JSON: true,
		Data: fmt.Appendf(nil, `{"courseId":%q,"studentId":%q,"enrolledAt":"2026-09-01T08:30:00Z","semester":"2026-autumn","status":"confirmed","credits":6}`,
			course, student),
	}
}

func offer(course string, random *rand.Rand) eventstore.Event {
	return eventstore.Event{
		Type: courseOffered, Tags: []string{"course:" + course}, JSON: true,
		Data: fmt.Appendf(nil, `{"courseId":%q,"title":"Introduction to subject %d","capacity":%d,"instructor":"Prof. %d","semester":"2026-autumn"}`,
			course, random.IntN(1000), 20+random.IntN(80), random.IntN(200)),
	}
}

func register(student string, random *rand.Rand) eventstore.Event {
	return eventstore.Event{
		Type: studentRegistered, Tags: []string{"student:" + student}, JSON: true,
		Data: fmt.Appendf(nil, `{"studentId":%q,"name":"Student %d","email":"%s@example.edu","year":%d}`,
			student, random.IntN(1_000_000), student, 1+random.IntN(5)),
	}
}

// specialStudent returns the student who enrols as number n in a course that
// operations look for.
func specialStudent(course string, n int) string { return fmt.Sprintf("%s-s%d", course, n) }

// readCourse is a course that reads choose: its tag, and the tag of the last
// student in it.
type readCourse struct{ tag, last string }

var readable = func() (all [readCourses]readCourse) {
	for i := range all {
		course := fmt.Sprintf("read-%d", i)
		all[i] = readCourse{"course:" + course, "student:" + specialStudent(course, readEvents-1)}
	}
	return all
}()

// events yields the dataset in a realistic order for a university, followed by
// the few events that the operations look for.
func (d dataset) events(past int, conflicts []int) func(yield func(eventstore.Event) bool) {
	return func(yield func(eventstore.Event) bool) {
		random := rand.New(rand.NewPCG(1, 2))
		for i := range d.courses {
			if !yield(offer(fmt.Sprintf("c%d", i), random)) {
				return
			}
		}
		for i := range d.students {
			if !yield(register(fmt.Sprintf("s%d", i), random)) {
				return
			}
		}
		for range d.enrolments {
			e := enrolment(fmt.Sprintf("c%d", random.IntN(d.courses)), fmt.Sprintf("s%d", random.IntN(d.students)))
			if !yield(e) {
				return
			}
		}
		special := func(course string, n int) bool {
			for i := range n {
				if !yield(enrolment(course, specialStudent(course, i))) {
					return false
				}
			}
			return true
		}
		for i := range readCourses {
			if !special(fmt.Sprintf("read-%d", i), readEvents) {
				return
			}
		}
		for i := range pastCourses {
			if !special(fmt.Sprintf("past-%d", i), past) {
				return
			}
		}
		for _, n := range conflicts {
			if !special(fmt.Sprintf("conflict-%d", n), n) {
				return
			}
		}
	}
}

// freshEvents creates the store again with the dataset in it, and returns the
// number of events.
func freshEvents(ctx context.Context, pool *pgxpool.Pool, client *eventstore.Client, d dataset, past int, conflicts []int, progress func(string, ...any)) (s *eventstore.Store, size int, err error) {
	if err := dropEvents(ctx, pool); err != nil {
		return nil, 0, err
	}
	if s, err = client.Ensure(ctx, eventsStore); err != nil {
		return nil, 0, err
	}
	said := time.Now()
	var batch []eventstore.Event
	flush := func() error {
		_, err := s.Append(ctx, batch...)
		size += len(batch)
		batch = batch[:0]
		if time.Since(said) > 2*time.Second {
			said = time.Now()
			progress("  loading: %d of %d events", size, d.size())
		}
		return err
	}
	for e := range d.events(past, conflicts) {
		if batch = append(batch, e); len(batch) == loadBatch {
			if err := flush(); err != nil {
				return nil, 0, fmt.Errorf("load: %w", err)
			}
		}
	}
	if err := flush(); err != nil {
		return nil, 0, fmt.Errorf("load: %w", err)
	}
	// Autovacuum would do this in time.
	_, err = pool.Exec(ctx, fmt.Sprintf(`VACUUM ANALYZE tidewire.events_%d, tidewire.events_%[1]d_tag`, s.ID()))
	return s, size, err
}

func dropEvents(ctx context.Context, pool *pgxpool.Pool) error {
	names, err := eventstore.List(ctx, pool)
	if err != nil {
		return err
	}
	for _, name := range names {
		number, more := strings.CutPrefix(name, eventsStore+"-")
		if _, err := strconv.Atoi(number); name != eventsStore && (!more || err != nil) {
			continue // belongs to another application
		}
		if err := eventstore.Drop(ctx, pool, name); err != nil {
			return err
		}
	}
	return nil
}
