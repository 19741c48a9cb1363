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

// openExample opens a Client as in the example of the package.
func openExample(ctx context.Context) (pool *pgxpool.Pool, queues *queue.Client, done func()) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := migrate.Up(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if queues, err = queue.Open(ctx, pool, queue.Config{}); err != nil {
		log.Fatal(err)
	}
	return pool, queues, func() {
		queues.Close(ctx)
		pool.Close()
	}
}

// If the handler returns an error, the message is delivered again after a pause; an error that wraps ErrDead makes it a dead
// letter, which can be inspected, and enqueued again with Redrive.
func ExampleQueue_Work() {
	ctx := context.Background()
	_, queues, done := openExample(ctx)
	defer done()

	jobs, err := queues.Ensure(ctx, "thumbnails", queue.Options{MaxAttempts: 3, RetryMin: time.Millisecond, RetryMax: time.Second})
	if err != nil {
		log.Print(err)
		return
	}
	if _, err := jobs.Enqueue(ctx, queue.Message{Payload: []byte("cat.jpg")}, queue.Message{Payload: []byte("notes.txt")}); err != nil {
		log.Print(err)
		return
	}
	working, stop := context.WithCancel(ctx)
	failed, left := false, 2
	err = jobs.Work(working, queue.WorkOptions{Concurrency: 1}, func(ctx context.Context, d *queue.Delivery) error {
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
	_, queues, done := openExample(ctx)
	defer done()

	calls, err := queues.Ensure(ctx, "calls", queue.Options{})
	if err != nil {
		log.Print(err)
		return
	}
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
	_, queues, done := openExample(ctx)
	defer done()

	orders, err := queues.Ensure(ctx, "orders", queue.Options{Priorities: 3})
	if err != nil {
		log.Print(err)
		return
	}
	for priority := range 3 {
		m := queue.Message{Payload: fmt.Append(nil, "priority ", priority), Priority: priority}
		if _, err := orders.Enqueue(ctx, m); err != nil {
			log.Print(err)
			return
		}
	}
	working, stop := context.WithCancel(ctx)
	left := 3
	err = orders.Work(working, queue.WorkOptions{Concurrency: 1}, func(ctx context.Context, d *queue.Delivery) error {
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
	_, queues, done := openExample(ctx)
	defer done()

	accounts, err := queues.Ensure(ctx, "accounts", queue.Options{Partitions: 8})
	if err != nil {
		log.Print(err)
		return
	}
	for _, text := range []string{"open", "pay in", "close"} {
		if _, err := accounts.Enqueue(ctx, queue.Message{Key: "account 7", Payload: []byte(text)}); err != nil {
			log.Print(err)
			return
		}
	}
	working, stop := context.WithCancel(ctx)
	err = accounts.Work(working, queue.WorkOptions{Concurrency: 20}, func(ctx context.Context, d *queue.Delivery) error {
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
	pool, queues, done := openExample(ctx)
	defer done()

	invoices, err := queues.Ensure(ctx, "invoices", queue.Options{})
	if err != nil {
		log.Print(err)
		return
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
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
