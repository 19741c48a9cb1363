package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"sync"

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
