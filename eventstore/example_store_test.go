package eventstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/migrate"
)

// examples counts the stores of examples.
var examples int

// exampleStore returns an empty store, and a function to call at the end.
func exampleStore() (*eventstore.Store, func()) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := migrate.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	client, err := eventstore.Open(ctx, pool, eventstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	examples++
	store, err := client.Ensure(ctx, fmt.Sprint("example ", examples))
	if err != nil {
		log.Fatal(err)
	}
	return store, func() {
		client.Close(ctx)
		pool.Close()
	}
}
