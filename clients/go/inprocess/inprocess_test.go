package inprocess_test

import (
	"context"
	"testing"

	"github.com/tidewire/tidewire/clients/go"
	"github.com/tidewire/tidewire/clients/go/examples/orders"
	"github.com/tidewire/tidewire/clients/go/examples/orders/orderstest"
	"github.com/tidewire/tidewire/clients/go/inprocess"
	"github.com/tidewire/tidewire/eventstore"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestInProcess(t *testing.T) {
	ctx, db := context.Background(), pgtest.Open(t)
	if _, err := migrate.Up(ctx, db.Pool); err != nil {
		t.Fatal(err)
	}
	streams, err := stream.Open(ctx, db.Pool, stream.Config{})
	check(t, err)
	defer streams.Close(ctx)
	queues, err := queue.Open(ctx, db.Pool, queue.Config{})
	check(t, err)
	defer queues.Close(ctx)
	stores, err := eventstore.Open(ctx, db.Pool, eventstore.Config{})
	check(t, err)
	defer stores.Close(ctx)
	s, err := streams.Ensure(ctx, "orders", stream.Options{})
	check(t, err)
	q, err := queues.Ensure(ctx, "mails", queue.Options{})
	check(t, err)
	store, err := stores.Ensure(ctx, eventstore.DefaultName)
	check(t, err)
	orderstest.Run(t, &orders.Service{
		Events: inprocess.Events(store),
		Orders: inprocess.Log[orders.Placed](s, tidewire.JSONCodec[orders.Placed]{}),
		Mails:  inprocess.Jobs[orders.Mail](q, tidewire.JSONCodec[orders.Mail]{}),
	}, "pear")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
