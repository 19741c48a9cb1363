package inprocess_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

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

// queueOf returns a new queue.
func queueOf(t *testing.T, ctx context.Context) *queue.Queue {
	t.Helper()
	db := pgtest.Open(t)
	_, err := migrate.Up(ctx, db.Pool)
	check(t, err)
	queues, err := queue.Open(ctx, db.Pool, queue.Config{})
	check(t, err)
	t.Cleanup(func() { queues.Close(context.Background()) })
	q, err := queues.Ensure(ctx, "jobs", queue.Options{})
	check(t, err)
	return q
}

// log is what slog has been told.
type log struct {
	mu    sync.Mutex
	lines bytes.Buffer
	some  chan struct{}
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.some <- struct{}{} }()
	return l.lines.Write(p)
}

func TestAHandlerThatFailsIsLogged(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	before, told := slog.Default(), &log{some: make(chan struct{}, 100)}
	slog.SetDefault(slog.New(slog.NewTextHandler(told, nil)))
	defer slog.SetDefault(before)
	jobs := inprocess.Jobs[string](queueOf(t, ctx), tidewire.JSONCodec[string]{})
	_, err := jobs.EnqueueAll(ctx, []string{"bad", "dead", "panic"})
	check(t, err)
	working, end := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		ended <- jobs.Work(working, func(_ context.Context, job *tidewire.Job[string]) error {
			switch job.Value {
			case "bad":
				return errors.New("the printer burns")
			case "panic":
				panic("no paper")
			}
			return tidewire.Dead("never")
		})
	}()
	for range 2 {
		select {
		case <-told.some:
		case <-ctx.Done():
			t.Fatal("nothing is logged")
		}
	}
	end()
	check(t, <-ended)
	told.mu.Lock()
	defer told.mu.Unlock()
	for _, want := range []string{"the printer burns", "queue=jobs", "position=1", "attempt=1", "no paper"} {
		if !strings.Contains(told.lines.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, told.lines.String())
		}
	}
	if strings.Contains(told.lines.String(), "never") {
		t.Errorf("what a handler has chosen is in the log:\n%s", told.lines.String())
	}
}

func TestOutcomesAreReportedOneAfterTheOther(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	jobs := inprocess.Jobs[int](queueOf(t, ctx), tidewire.JSONCodec[int]{})
	const n = 200
	_, err := jobs.EnqueueAll(ctx, make([]int, n))
	check(t, err)
	told := 0
	err = jobs.Work(ctx, func(context.Context, *tidewire.Job[int]) error { return nil }, tidewire.Concurrency(8),
		tidewire.OnOutcome(func(int64, tidewire.Outcome) {
			if told++; told == n {
				stop()
			}
		}))
	if err != nil || told < n {
		t.Errorf("%d outcomes, %v", told, err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
