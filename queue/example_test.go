package queue_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

func Example() {
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

	if _, err := n.Enqueue(ctx, queue.Message{Message: stream.Message{Payload: []byte("hello")}}); err != nil {
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
