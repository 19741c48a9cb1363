package eventstore_test

import (
	"context"
	"log"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// exampleTB is what pgtest needs of a test: examples have none.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (t *exampleTB) Helper()                   {}
func (t *exampleTB) Context() context.Context  { return context.Background() }
func (t *exampleTB) Cleanup(f func())          { t.cleanups = append(t.cleanups, f) }
func (t *exampleTB) Errorf(f string, a ...any) { log.Printf(f, a...) }
func (t *exampleTB) Fatalf(f string, a ...any) { log.Fatalf(f, a...) }

// exampleStore returns an empty store, and a function to call at the end.
func exampleStore() (*eventstore.Store, func()) {
	ctx := context.Background()
	t := &exampleTB{}
	db := pgtest.Open(t)
	if _, err := migrate.Up(ctx, db.Pool); err != nil {
		log.Fatal(err)
	}
	client, err := eventstore.Open(ctx, db.Pool, eventstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	store, err := client.Ensure(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	return store, func() {
		client.Close(ctx)
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}
}
