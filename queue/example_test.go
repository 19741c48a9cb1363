package queue_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

// A consumer is one call of Work: a message is acknowledged when its handler returns nil, and tried again after an
// error.
func Example() {
	if err := enqueueAndWork(context.Background(), os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
	// Output:
	// mail to Ann
	// mail to Bob
}

func enqueueAndWork(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool); err != nil {
		return err
	}
	queues, err := queue.Open(ctx, pool, queue.Config{})
	if err != nil {
		return err
	}
	defer queues.Close(ctx)
	mail, err := queues.Ensure(ctx, "mail", queue.Options{MaxAttempts: 5})
	if err != nil {
		return err
	}
	if _, err := mail.Enqueue(ctx, queue.Message{Payload: []byte("Ann")}, queue.Message{Payload: []byte("Bob")}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return mail.Work(ctx, queue.WorkOptions{Concurrency: 1}, func(ctx context.Context, d *queue.Delivery) error {
		fmt.Println("mail to", string(d.Payload))
		if string(d.Payload) == "Bob" {
			stop() // else Work goes on
		}
		return nil
	})
}
