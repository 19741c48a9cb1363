package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// A process has one Client. Messages are committed when Append returns; a loop over Subscribe gets the
// existing messages, and then the new ones.
func Example() {
	if err := publishAndSubscribe(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 2 apples
	// 2 3 pears
}

func publishAndSubscribe(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool); err != nil {
		return err
	}
	streams, err := stream.Open(ctx, pool, stream.Config{})
	if err != nil {
		return err
	}
	defer streams.Close(ctx)
	orders, err := streams.Ensure(ctx, "orders", stream.Options{})
	if err != nil {
		return err
	}
	stored, err := orders.Append(ctx, stream.Message{Payload: []byte("2 apples")}, stream.Message{Payload: []byte("3 pears")})
	if err != nil {
		return err
	}
	for m, err := range orders.Subscribe(ctx, stream.After(0)) {
		if err != nil {
			return err
		}
		fmt.Println(m.Position, string(m.Payload))
		if m.Position == stored.Last {
			break // else the loop waits for more
		}
	}
	return nil
}

// openExample opens a Client as in the example of the package.
func openExample(ctx context.Context) (pool *pgxpool.Pool, streams *stream.Client, done func()) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := migrate.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if streams, err = stream.Open(ctx, pool, stream.Config{}); err != nil {
		log.Fatal(err)
	}
	return pool, streams, func() {
		streams.Close(ctx)
		pool.Close()
	}
}

// A keyed stream is read by key: here the last state of a customer.
func ExampleStream_LastKey() {
	ctx := context.Background()
	_, streams, done := openExample(ctx)
	defer done()

	customers, err := streams.Ensure(ctx, "customers", stream.Options{Keyed: true})
	if err != nil {
		log.Print(err)
		return
	}
	for _, city := range []string{"Rome", "Oslo"} {
		moved := stream.Message{Key: "customer 7", Headers: json.RawMessage(`{"type":"moved"}`), Payload: []byte(city)}
		if _, err := customers.Append(ctx, moved); err != nil {
			log.Print(err)
			return
		}
	}
	last, err := customers.LastKey(ctx, "customer 7", math.MaxInt64, 1)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(string(last[0].Payload), string(last[0].Headers))
	// Output:
	// Oslo {"type": "moved"}
}

// A request without an answer is repeated, in this or in another process: it is stored
// once.
func ExampleStream_AppendAs() {
	ctx := context.Background()
	_, streams, done := openExample(ctx)
	defer done()

	payments, err := streams.Ensure(ctx, "payments", stream.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	request := stream.RequestID{Client: "checkout 3", Sequence: 17}
	for range 2 { // as after a timeout
		stored, err := payments.AppendAs(ctx, request, stream.Message{Payload: []byte("3 EUR")})
		fmt.Println(stored.First, stored.Duplicate, err)
	}
	// Output:
	// 1 false <nil>
	// 1 true <nil>
}

// The message is stored if and only if the order is: a transactional outbox.
func ExampleStream_AppendTx() {
	ctx := context.Background()
	pool, streams, done := openExample(ctx)
	defer done()

	placed, err := streams.Ensure(ctx, "placed", stream.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	place := func(apples int) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := placed.AppendTx(ctx, tx, stream.Message{Payload: fmt.Append(nil, apples, " apples")}); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `SELECT 12 / $1::int`, apples) // what else belongs to an order
			return err
		})
		placed.Notify() // so that subscribers need not wait for their next poll
		return err
	}
	fmt.Println(place(2) == nil, place(0) == nil)
	messages, err := placed.Read(ctx, 0, 10)
	fmt.Println(len(messages), err)
	// Output:
	// true false
	// 1 <nil>
}

// Processes that work in one group divide the messages among them, and continue where
// the group has stopped.
func ExampleStream_Work() {
	ctx := context.Background()
	_, streams, done := openExample(ctx)
	defer done()

	shipments, err := streams.Ensure(ctx, "shipments", stream.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	if _, err := shipments.Append(ctx, stream.Message{Payload: []byte("2 apples")}); err != nil {
		log.Print(err)
		return
	}
	working, stop := context.WithCancel(ctx)
	err = shipments.Work(working, "billing", stream.WorkOptions{}, func(ctx context.Context, page []stream.Message) error {
		for _, m := range page {
			fmt.Println("bill", string(m.Payload))
		}
		stop()     // otherwise Work continues
		return nil // the offset of the group is committed
	})
	if err != nil {
		log.Print(err)
		return
	}
	billing, err := shipments.Group(ctx, "billing", stream.GroupOptions{})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(billing.Offset(ctx))
	// Output:
	// bill 2 apples
	// 1 <nil>
}

// A reader that commits its offset itself.
func ExampleGroup_Pages() {
	ctx := context.Background()
	_, streams, done := openExample(ctx)
	defer done()

	visits, err := streams.Ensure(ctx, "visits", stream.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	if _, err := visits.Append(ctx, stream.Message{Payload: []byte("a")}, stream.Message{Payload: []byte("b")}); err != nil {
		log.Print(err)
		return
	}
	counted, err := visits.Group(ctx, "counted", stream.GroupOptions{})
	if err != nil {
		log.Print(err)
		return
	}
	for page, err := range counted.Pages(ctx) {
		if err != nil {
			log.Print(err)
			return
		}
		offset, err := counted.Commit(ctx, page[len(page)-1].Position) // or CommitLater, together with others
		fmt.Println(len(page), "visits, offset", offset, err)
		break
	}
	// Output:
	// 2 visits, offset 2 <nil>
}

// A stream that keeps a week, or 10 GiB if that is less, and how a reader continues that was away for
// longer.
func ExampleStream_SetRetention() {
	var orders *stream.Stream // of a Client
	ctx := context.Background()

	if err := orders.SetRetention(ctx, stream.Retention{MaxAge: 7 * 24 * time.Hour, MaxBytes: 10 << 30}); err != nil {
		log.Print(err)
		return
	}
	after := int64(1234)
	for {
		for m, err := range orders.Subscribe(ctx, stream.After(after)) {
			var tooOld *stream.TooOldError
			if errors.As(err, &tooOld) {
				log.Printf("missed what was between %d and %d", after, tooOld.Oldest)
				after = tooOld.Oldest - 1
				break
			}
			if err != nil {
				log.Print(err)
				return
			}
			fmt.Println(string(m.Payload))
			after = m.Position
		}
	}
}

// Submit is for programs that answer their own clients: one callback at a time, in the order of the stream,
// and only for committed messages.
func ExampleAppender_Submit() {
	var pool *pgxpool.Pool
	var orders *stream.Stream // from Ensure
	reply := func(position int64, payload []byte) {}

	appender := stream.NewAppender(pool, orders, stream.AppenderConfig{})
	appender.Start()
	defer appender.Stop() // when all that was accepted is answered
	payload := []byte("hello")
	err := appender.Submit(context.Background(), []stream.Message{{Payload: payload}}, func(at stream.Appended, err error) {
		if err == nil {
			reply(at.First, payload)
		}
	})
	if err != nil {
		log.Print(err) // not accepted: there will be no callback
	}
}

// For programs that read on their own: Watch tells when the stream may have grown.
func ExampleHub_Watch() {
	var streams *stream.Client
	var orders *stream.Stream
	ctx := context.Background()

	changed, stop := streams.Hub().Watch(orders)
	defer stop()
	for {
		head, err := orders.Head(ctx)
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println("the stream ends at", head)
		<-changed
	}
}
