package eventstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
)

// A course has a limited number of seats, and a student takes a course once. Two
// callers never both get the last seat, also in different processes.
func Example_courseEnrolment() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	errFull, errTwice := errors.New("course is full"), errors.New("student is enrolled already")
	capacity := func(course string) *eventstore.Projection[int] {
		return eventstore.Projector[int]{
			Query: eventstore.Query{Items: []eventstore.Item{{Types: []string{"CourseOffered"}, Tags: []string{"course:" + course}}}},
			Apply: func(_ int, e eventstore.Event) int {
				var offer struct{ Seats int }
				json.Unmarshal(e.Data, &offer)
				return offer.Seats
			},
		}.Projection()
	}
	enrolled := func(tags ...string) *eventstore.Projection[int] {
		return eventstore.Projector[int]{
			Query: eventstore.Query{Items: []eventstore.Item{{Types: []string{"Enrolled"}, Tags: tags}}},
			Apply: func(n int, _ eventstore.Event) int { return n + 1 },
		}.Projection()
	}
	enrol := func(course, student string) error {
		seats, taken := capacity(course), enrolled("course:"+course)
		own := enrolled("course:"+course, "student:"+student)
		_, err := store.Decide(ctx, func() ([]eventstore.Event, error) {
			if own.State > 0 {
				return nil, errTwice
			}
			if taken.State >= seats.State {
				return nil, errFull
			}
			return []eventstore.Event{{Type: "Enrolled", Tags: []string{"course:" + course, "student:" + student}}}, nil
		}, seats, taken, own)
		return err
	}

	store.Append(ctx, eventstore.Event{Type: "CourseOffered", Tags: []string{"course:go"}, Data: []byte(`{"seats":2}`), JSON: true})
	for _, student := range []string{"Ann", "Ann", "Bob", "Cid"} {
		fmt.Println(student, enrol("go", student))
	}
	// Output:
	// Ann <nil>
	// Ann student is enrolled already
	// Bob <nil>
	// Cid course is full
}

// A user name is taken once, and free again when its user has left.
func Example_uniqueUserName() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	register := func(name string) error {
		taken := eventstore.Projector[bool]{
			Query: eventstore.Tagged("username:" + name),
			Apply: func(_ bool, e eventstore.Event) bool { return e.Type == "UserRegistered" },
		}.Projection()
		_, err := store.Decide(ctx, func() ([]eventstore.Event, error) {
			if taken.State {
				return nil, fmt.Errorf("%s is taken", name)
			}
			return []eventstore.Event{{Type: "UserRegistered", Tags: []string{"username:" + name}}}, nil
		}, taken)
		return err
	}

	fmt.Println(register("ann"))
	fmt.Println(register("ann"))
	store.Append(ctx, eventstore.Event{Type: "UserLeft", Tags: []string{"username:ann"}})
	fmt.Println(register("ann"))
	// Output:
	// <nil>
	// ann is taken
	// <nil>
}

// Money moves between two accounts by one event with the tags of both accounts. No
// account is overdrawn.
func Example_moneyTransfer() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	type movement struct {
		From, To string
		Cents    int
	}
	balance := func(account string) *eventstore.Projection[int] {
		return eventstore.Projector[int]{
			Query: eventstore.Tagged("account:" + account),
			Apply: func(cents int, e eventstore.Event) int {
				var m movement
				json.Unmarshal(e.Data, &m)
				if m.From == account {
					cents -= m.Cents
				}
				if m.To == account {
					cents += m.Cents
				}
				return cents
			},
		}.Projection()
	}
	transfer := func(m movement) error {
		from := balance(m.From)
		_, err := store.Decide(ctx, func() ([]eventstore.Event, error) {
			if from.State < m.Cents {
				return nil, fmt.Errorf("%s has %d only", m.From, from.State)
			}
			data, err := json.Marshal(m)
			return []eventstore.Event{{
				Type: "Transferred", Tags: []string{"account:" + m.From, "account:" + m.To}, Data: data, JSON: true,
			}}, err
		}, from)
		return err
	}

	store.Append(ctx, eventstore.Event{Type: "Deposited", Tags: []string{"account:ann"}, Data: []byte(`{"to":"ann","cents":100}`), JSON: true})
	fmt.Println(transfer(movement{"ann", "bob", 70}))
	fmt.Println(transfer(movement{"ann", "bob", 70}))
	bob := balance("bob")
	if _, err := store.Project(ctx, bob); err != nil {
		log.Print(err)
	}
	fmt.Println("bob has", bob.State)
	// Output:
	// <nil>
	// ann has 30 only
	// bob has 70
}

// Invoice numbers have no gaps, although positions may: each number follows
// from the last invoice, and the append fails if that is not the last any more.
func Example_invoiceNumbers() {
	ctx := context.Background()
	store, done := exampleStore()
	defer done()

	invoices := eventstore.Typed("InvoiceIssued")
	issue := func(customer string) (number int, err error) {
		for {
			last, err := store.Query(ctx, invoices, eventstore.ReadOptions{Backwards: true, Limit: 1})
			if err != nil {
				return 0, err
			}
			number, after := 1, int64(0)
			if len(last) > 0 {
				var invoice struct{ Number int }
				if err := json.Unmarshal(last[0].Data, &invoice); err != nil {
					return 0, err
				}
				number, after = invoice.Number+1, last[0].Position
			}
			_, err = store.AppendIf(ctx, []eventstore.Event{{
				Type: "InvoiceIssued", Tags: []string{"customer:" + customer}, Data: fmt.Appendf(nil, `{"number":%d}`, number), JSON: true,
			}}, eventstore.Condition{FailIfEventsMatch: invoices, After: after})
			if !errors.Is(err, eventstore.ErrConflict) { // else somebody was faster
				return number, err
			}
		}
	}

	for _, customer := range []string{"ann", "bob", "ann"} {
		fmt.Println(issue(customer))
	}
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 3 <nil>
}

// Watch tells a program that shows a decision to a person when the decision becomes stale.
func ExampleStore_Watch() {
	var store *eventstore.Store // of a Client
	var seat eventstore.Condition
	err := store.Watch(context.Background(), seat)
	var conflict *eventstore.ConflictError
	if errors.As(err, &conflict) {
		fmt.Println("somebody else was faster, at", conflict.Position)
	}
}

// A subscription begins with the stored events and continues with new ones.
func ExampleStore_Subscribe() {
	var store *eventstore.Store // of a Client
	ctx := context.Background()
	for e, err := range store.Subscribe(ctx, eventstore.Typed("InvoiceIssued"), eventstore.After(0)) {
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(e.Position, e.Type)
	}
}

// The events are stored if and only if the order is stored.
func ExampleStore_AppendIfTx() {
	var store *eventstore.Store // of a Client
	var pool *pgxpool.Pool      // from pgxpool.New
	ctx := context.Background()
	tx, err := pool.Begin(ctx) // READ COMMITTED, as PostgreSQL's default is
	if err != nil {
		log.Print(err)
		return
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `INSERT INTO shop_order (customer, apples) VALUES (7, 2)`); err != nil {
		log.Print(err)
		return
	}
	placed := []eventstore.Event{{Type: "OrderPlaced", Tags: []string{"customer:7"}}}
	blocked := eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{{Types: []string{"CustomerBlocked"}, Tags: []string{"customer:7"}}}}}
	if _, err := store.AppendIfTx(ctx, tx, placed, blocked); err != nil { // last: others wait from here on
		log.Print(err)
		return
	}
	if err := tx.Commit(ctx); err != nil {
		log.Print(err)
		return
	}
	store.Notify()
}
