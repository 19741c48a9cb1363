package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/migrate"
)

// An append names the events that must not exist: of two callers who book a seat, also in different processes, one gets it.
func Example() {
	if err := bookTwice(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Ann has booked 4A
	// for Bob it is taken, by the event at position 1
	// 1 SeatBooked [seat:4A customer:Ann]
}

func bookTwice(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool); err != nil {
		return err
	}
	stores, err := eventstore.Open(ctx, pool, eventstore.Config{})
	if err != nil {
		return err
	}
	defer stores.Close(ctx)
	store, err := stores.Ensure(ctx, "theatre")
	if err != nil {
		return err
	}
	seat := eventstore.Condition{FailIfEventsMatch: eventstore.Tagged("seat:4A")}
	for _, customer := range []string{"Ann", "Bob"} {
		booked := eventstore.Event{Type: "SeatBooked", Tags: []string{"seat:4A", "customer:" + customer}}
		_, err := store.AppendIf(ctx, []eventstore.Event{booked}, seat)
		var taken *eventstore.ConflictError
		switch {
		case errors.As(err, &taken):
			fmt.Println("for", customer, "it is taken, by the event at position", taken.Position)
		case err != nil:
			return err
		default:
			fmt.Println(customer, "has booked 4A")
		}
	}
	for e, err := range store.QueryStream(ctx, eventstore.Everything(), eventstore.ReadOptions{}) {
		if err != nil {
			return err
		}
		fmt.Println(e.Position, e.Type, e.Tags)
	}
	return nil
}
