package queue_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
)

// A consumer is one call of Work: a message is acknowledged when its handler returns nil, and tried again after an error.
func Example() {
	ctx := context.Background()
	var pool *pgxpool.Pool // to a database that migrate.Up has prepared

	q, err := queue.Ensure(ctx, pool, "mail", queue.Options{MaxAttempts: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = q.Work(ctx, queue.WorkOptions{Concurrency: 20}, func(ctx context.Context, d *queue.Delivery) error {
		fmt.Printf("%s\n", d.Payload)
		return nil
	})
	fmt.Println(err)
}

// A Node with a Consumer is for those who decide themselves what becomes of each delivery, and when.
func ExampleNode_Consume() {
	ctx := context.Background()
	var pool *pgxpool.Pool // to a database that migrate.Up has prepared

	q, err := queue.Ensure(ctx, pool, "mail", queue.Options{MaxAttempts: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	n := queue.NewNode(q, queue.NodeConfig{})
	running, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := n.Run(running); err != nil {
			fmt.Println(err)
		}
	})
	defer wait.Wait()
	defer stop()

	if _, err := n.Enqueue(ctx, queue.Message{Payload: []byte("hello")}); err != nil {
		fmt.Println(err)
		return
	}
	c := n.Consume(queue.ConsumerOptions{Credits: 10})
	defer c.Close()
	deliveries, err := c.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range deliveries {
		fmt.Printf("%s\n", d.Payload)
		if err := d.Ack(ctx); err != nil { // with ErrLeaseLost it comes again
			fmt.Println(err)
		}
	}
}

// A queue with priorities is used as any other.
func Example_priorities() {
	ctx := context.Background()
	var pool *pgxpool.Pool // as above

	q, err := queue.Ensure(ctx, pool, "orders", queue.Options{Priorities: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	n := queue.NewNode(q, queue.NodeConfig{})
	running, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := n.Run(running); err != nil {
			fmt.Println(err)
		}
	})
	defer wait.Wait()
	defer stop()

	urgent := queue.Message{Payload: []byte("first"), Priority: 2}
	if _, err := n.Enqueue(ctx, urgent); err != nil {
		fmt.Println(err)
	}
}

// Messages with one key are handed out one after the other.
func Example_orderOfKeys() {
	ctx := context.Background()
	var pool *pgxpool.Pool // as above

	q, err := queue.Ensure(ctx, pool, "accounts", queue.Options{Partitions: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	running, stop := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() { p.Run(running) })
	defer wait.Wait()
	defer stop()

	for _, text := range []string{"open", "pay in", "close"} {
		m := queue.Message{Key: "account 7", Payload: []byte(text)}
		if _, err := p.Enqueue(ctx, m); err != nil {
			fmt.Println(err)
			return
		}
	}
}

// The message is enqueued if, and only if, the order is stored.
func ExampleQueue_EnqueueTx() {
	ctx := context.Background()
	var pool *pgxpool.Pool
	var q *queue.Queue // as above

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES (7)`); err != nil {
			return err
		}
		return q.EnqueueTx(ctx, tx, queue.Message{Payload: []byte("order 7")})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	q.Notify()
}
