package stream_test

import (
	"context"
	"fmt"
	"log"
	"os"

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
