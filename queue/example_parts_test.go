package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

// exampleQueue makes a queue with a Client as in the example of the package. done is to be called at the end.
func exampleQueue(name string, opts queue.Options) (q *queue.Queue, pool *pgxpool.Pool, done func()) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := migrate.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	queues, err := queue.Open(ctx, pool, queue.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if q, err = queues.Ensure(ctx, name, opts); err != nil {
		log.Fatal(err)
	}
	return q, pool, func() {
		queues.Close(ctx)
		pool.Close()
	}
}

// If the handler returns an error, the message is delivered again after a pause; an error that wraps ErrDead makes it a dead
// letter, which can be inspected, and enqueued again with Redrive.
func ExampleQueue_Work() {
	ctx := context.Background()
	jobs, _, done := exampleQueue("thumbnails", queue.Options{MaxAttempts: 3, RetryMin: time.Millisecond, RetryMax: time.Second})
	defer done()

	if _, err := jobs.Enqueue(ctx, queue.Message{Payload: []byte("cat.jpg")}, queue.Message{Payload: []byte("notes.txt")}); err != nil {
		log.Print(err)
		return
	}
	working, stop := context.WithCancel(ctx)
	failed, left := false, 2
	err := jobs.Work(working, queue.WorkOptions{Concurrency: 1}, func(ctx context.Context, d *queue.Delivery) error {
		file := string(d.Payload)
		if file == "cat.jpg" && !failed {
			failed = true
			return errors.New("the disk is full")
		}
		if left--; left == 0 {
			stop() // when this one is settled, too
		}
		if file == "notes.txt" {
			return fmt.Errorf("%s is no picture: %w", file, queue.ErrDead)
		}
		fmt.Println("made", file, "at attempt", d.Attempt)
		return nil
	})
	if err != nil {
		log.Print(err)
		return
	}
	letters, err := jobs.DeadLetters(ctx, 0, 10)
	if err != nil {
		log.Print(err)
		return
	}
	for _, l := range letters {
		fmt.Println("dead:", l.Reason)
	}
	// Output:
	// made cat.jpg at attempt 2
	// dead: notes.txt is no picture: queue: not to be tried again
}

// A Consumer is for programs that settle each delivery themselves, at a time of their choice.
func ExampleQueue_Consume() {
	ctx := context.Background()
	calls, _, done := exampleQueue("calls", queue.Options{})
	defer done()

	if _, err := calls.Enqueue(ctx, queue.Message{Payload: []byte("hello")}); err != nil {
		log.Print(err)
		return
	}
	c, err := calls.Consume(queue.ConsumerOptions{Credits: 10, Visibility: time.Minute})
	if err != nil {
		log.Print(err)
		return
	}
	defer c.Close()
	deliveries, err := c.Receive(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	for _, d := range deliveries {
		fmt.Println(string(d.Payload))
		if err := d.Extend(5 * time.Minute); err != nil { // it takes longer than a minute
			log.Print(err)
		}
		fmt.Println(d.Ack(ctx)) // or Nack; after ErrLeaseLost it is delivered again
	}
	// Output:
	// hello
	// <nil>
}

// With priorities a free worker gets a message of the highest priority that its Node knows of.
func Example_priorities() {
	ctx := context.Background()
	orders, _, done := exampleQueue("orders", queue.Options{Priorities: 3})
	defer done()

	for priority := range 3 {
		m := queue.Message{Payload: fmt.Append(nil, "priority ", priority), Priority: priority}
		if _, err := orders.Enqueue(ctx, m); err != nil {
			log.Print(err)
			return
		}
	}
	working, stop := context.WithCancel(ctx)
	left := 3
	err := orders.Work(working, queue.WorkOptions{Concurrency: 1}, func(ctx context.Context, d *queue.Delivery) error {
		fmt.Println(string(d.Payload))
		if left--; left == 0 {
			stop()
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
	// Unordered output:
	// priority 2
	// priority 1
	// priority 0
}

// With partitions the messages of one key are delivered one after the other, in their order, whatever the number of workers.
func Example_orderOfKeys() {
	ctx := context.Background()
	accounts, _, done := exampleQueue("accounts", queue.Options{Partitions: 8})
	defer done()

	for _, text := range []string{"open", "pay in", "close"} {
		if _, err := accounts.Enqueue(ctx, queue.Message{Key: "account 7", Payload: []byte(text)}); err != nil {
			log.Print(err)
			return
		}
	}
	working, stop := context.WithCancel(ctx)
	err := accounts.Work(working, queue.WorkOptions{Concurrency: 20}, func(ctx context.Context, d *queue.Delivery) error {
		fmt.Println(d.Key, string(d.Payload))
		if string(d.Payload) == "close" {
			stop()
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
	// Output:
	// account 7 open
	// account 7 pay in
	// account 7 close
}

// The message is enqueued if, and only if, the transaction commits.
func ExampleQueue_EnqueueTx() {
	ctx := context.Background()
	invoices, pool, done := exampleQueue("invoices", queue.Options{})
	defer done()

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// … INSERT INTO orders …
		return invoices.EnqueueTx(ctx, tx, queue.Message{Payload: []byte("order 7")})
	})
	if err != nil {
		log.Print(err)
		return
	}
	invoices.Notify() // so that consumers need not wait for their next poll
	stats, err := invoices.Stats(ctx)
	fmt.Println(stats.Ready, err)
	// Output:
	// 1 <nil>
}
