// Command jobs is the program of docs/tutorials/jobs.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool); err != nil { // makes the schema tidewire; safe to call at each start
		return err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS shop_order (id int GENERATED ALWAYS AS IDENTITY, mail text NOT NULL)`); err != nil {
		return err
	}
	queues, err := queue.Open(ctx, pool, queue.Config{})
	if err != nil {
		return err
	}
	defer queues.Close(context.WithoutCancel(ctx))
	mails, err := queues.Ensure(ctx, "mails", queue.Options{MaxAttempts: 5})
	if err != nil {
		return err
	}
	if len(os.Args) > 1 {
		return order(ctx, pool, mails, os.Args[1])
	}
	return mails.Work(ctx, queue.WorkOptions{Concurrency: 20}, send)
}

// order stores an order, and the job of its mail, or neither.
func order(ctx context.Context, pool *pgxpool.Pool, mails *queue.Queue, mail string) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO shop_order (mail) VALUES ($1)`, mail); err != nil {
			return err
		}
		return mails.EnqueueTx(ctx, tx, queue.Message{Payload: []byte(mail)})
	})
	if err == nil {
		mails.Notify() // workers hear of it at once, and otherwise by their next poll
	}
	return err
}

// send is given each job. nil acknowledges it; an error has it tried again later.
func send(ctx context.Context, d *queue.Delivery) error {
	if d.Attempt == 1 {
		return fmt.Errorf("the mail server does not answer")
	}
	fmt.Printf("sent to %s at attempt %d\n", d.Payload, d.Attempt)
	return nil
}
