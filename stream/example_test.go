package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	orders, err := stream.Ensure(ctx, pool, "orders", stream.Options{Keyed: true})
	if err != nil {
		log.Fatal(err)
	}

	appender := stream.NewAppender(pool, orders, stream.AppenderConfig{})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { appender.Run(running) })
	defer background.Wait() // until all that was accepted is answered
	defer stop()

	first, err := appender.Append(ctx,
		stream.Message{Key: "customer 7", Headers: json.RawMessage(`{"type":"placed"}`), Payload: []byte("2 apples")},
		stream.Message{Key: "customer 7", Headers: json.RawMessage(`{"type":"paid"}`), Payload: []byte("3 EUR")})
	if err != nil {
		log.Print(err)
		return
	}

	all, err := orders.Read(ctx, first-1, 100)
	if err != nil {
		log.Print(err)
		return
	}
	for _, m := range all {
		fmt.Println(m.Position, m.Key, string(m.Payload))
	}
	latest, err := orders.LastKey(ctx, "customer 7", math.MaxInt64, 1)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(latest[0].Position, string(latest[0].Headers))
}

// Messages are published in the order of the stream, and only what is
// committed: callbacks come one after the other.
func ExampleAppender_Submit() {
	var appender *stream.Appender // from NewAppender
	publish := func(position int64, payload []byte) {}

	payload := []byte("hello")
	err := appender.Submit(context.Background(), []stream.Message{{Payload: payload}}, func(first int64, err error) {
		if err == nil {
			publish(first, payload)
		}
	})
	if err != nil {
		log.Print(err) // not accepted: there will be no callback
	}
}

// One Hub a process reads each stream once for all subscriptions, and the
// process's own appenders tell it of what they commit.
func ExampleHub() {
	var pool *pgxpool.Pool    // from pgxpool.New
	var orders *stream.Stream // from Ensure
	ctx := context.Background()

	hub := stream.NewHub(pool, stream.HubConfig{Announce: true})
	appender := stream.NewAppender(pool, orders, stream.AppenderConfig{Hub: hub})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { hub.Run(running) })
	background.Go(func() { appender.Run(running) })
	defer background.Wait()
	defer stop()

	sub, err := hub.Subscribe(ctx, orders, stream.AtEnd())
	if err != nil {
		log.Print(err)
		return
	}
	defer sub.Close()
	for {
		page, err := sub.Next(ctx)
		if err != nil {
			log.Print(err)
			return
		}
		for _, m := range page {
			fmt.Println(m.Position, m.Key, string(m.Payload))
		}
	}
}

// Whoever looks for itself is told when it is worth looking.
func ExampleHub_Watch() {
	var hub *stream.Hub       // from NewHub
	var orders *stream.Stream // from Ensure
	ctx := context.Background()

	changed, stop := hub.Watch(orders)
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

// A group goes on where it has been, in whichever process.
func ExampleGroup() {
	var pool *pgxpool.Pool    // from pgxpool.New
	var hub *stream.Hub       // from NewHub
	var orders *stream.Stream // from Ensure
	ctx := context.Background()
	deal := func(stream.Message) {}

	groups := stream.NewGroups(pool, stream.GroupsConfig{})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { groups.Run(running) })
	defer background.Wait() // until what was to be committed later is
	defer stop()

	invoices, err := groups.Open(ctx, orders, "invoices", stream.GroupOptions{Start: stream.AtEnd()})
	if err != nil {
		log.Print(err)
		return
	}
	sub, err := invoices.Subscribe(ctx, hub)
	if err != nil {
		log.Print(err)
		return
	}
	defer sub.Close()
	for {
		page, err := sub.Next(ctx)
		if err != nil {
			log.Print(err)
			return
		}
		for _, m := range page {
			deal(m)
		}
		invoices.CommitLater(sub.Position()) // or Commit, to be sure of it
	}
}

// The message is stored if the order is, and not otherwise.
func ExampleAppendTx() {
	var pool *pgxpool.Pool    // from pgxpool.New
	var hub *stream.Hub       // from NewHub
	var orders *stream.Stream // from Ensure
	ctx := context.Background()

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO shop_order (customer, apples) VALUES (7, 2)`); err != nil {
			return err
		}
		return stream.AppendTx(ctx, tx, orders, stream.Message{Key: "customer 7", Payload: []byte("2 apples")})
	})
	if err != nil {
		log.Print(err)
		return
	}
	hub.Notify(orders)
}

// A stream that keeps a week, or 10 GiB if that is less, and what a reader does
// that was away for longer.
func ExampleSetRetention() {
	var pool *pgxpool.Pool    // from pgxpool.New
	var hub *stream.Hub       // from NewHub
	var orders *stream.Stream // from Ensure
	ctx := context.Background()

	week := stream.Retention{MaxAge: 7 * 24 * time.Hour, MaxBytes: 10 << 30}
	if err := stream.SetRetention(ctx, pool, orders.Name(), week); err != nil {
		log.Print(err)
		return
	}
	keeper := stream.NewRetentionWorker(pool, stream.RetentionWorkerConfig{})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { keeper.Run(running) })
	defer background.Wait()
	defer stop()

	sub, err := hub.Subscribe(ctx, orders, stream.After(1234))
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { sub.Close() }()
	for {
		page, err := sub.Next(ctx)
		var tooOld *stream.TooOldError
		if errors.As(err, &tooOld) {
			log.Printf("missed what was between %d and %d", sub.Position(), tooOld.Oldest)
			var next *stream.Subscription
			if next, err = hub.Subscribe(ctx, orders, stream.After(tooOld.Oldest-1)); err == nil {
				sub.Close()
				sub = next
				continue
			}
		}
		if err != nil {
			log.Print(err)
			return
		}
		fmt.Println(len(page), "messages")
	}
}

// A request that got no answer is repeated, here or in another process: it is
// stored once.
func ExampleAppender_AppendAs() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	orders, err := stream.Lookup(ctx, pool, "orders")
	if err != nil {
		log.Print(err)
		return
	}
	appender := stream.NewAppender(pool, orders, stream.AppenderConfig{})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { appender.Run(running) })
	defer background.Wait()
	defer stop()

	request := stream.RequestID{Client: "checkout 3", Sequence: 17}
	for {
		patient, cancel := context.WithTimeout(ctx, 2*time.Second)
		first, err := appender.AppendAs(patient, request, stream.Message{Payload: []byte("2 apples")})
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue // stored or not: asking again does no harm
		}
		fmt.Println(first, err)
		return
	}
}

// A process may have an Appender for each of thousands of streams: one that is started and
// has nothing to write has no goroutine.
func ExampleAppender_Start() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	for _, name := range []string{"customer 7", "customer 8"} {
		customer, err := stream.Ensure(ctx, pool, name, stream.Options{})
		if err != nil {
			log.Print(err)
			return
		}
		appender := stream.NewAppender(pool, customer, stream.AppenderConfig{})
		appender.Start()
		defer appender.Stop() // when all that was accepted is answered
		first, err := appender.Append(ctx, stream.Message{Payload: []byte("2 apples")})
		fmt.Println(name, first, err)
	}
}

// Each process runs a member; they share out the partitions of the stream.
func ExampleMember() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	orders, err := stream.Ensure(ctx, pool, "orders by customer", stream.Options{Partitions: 16})
	if err != nil {
		log.Print(err)
		return
	}
	hub := stream.NewHub(pool, stream.HubConfig{})
	groups := stream.NewGroups(pool, stream.GroupsConfig{})
	running, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { hub.Run(running) })
	background.Go(func() { groups.Run(running) })
	defer background.Wait()
	defer stop()

	member, err := groups.Join(ctx, hub, orders, "billing", stream.MemberConfig{
		Handle: func(ctx context.Context, o *stream.Assignment, page []stream.Message) error {
			for _, m := range page {
				fmt.Println(o.Number, m.Position, m.Key, string(m.Payload))
			}
			return nil // the offset is committed
		},
	})
	if err != nil {
		log.Print(err)
		return
	}
	if err := member.Run(ctx); err != nil { // until ctx ends
		log.Print(err)
	}
}
