package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// bothOf returns a pool of the server of the pair that accepts writes.
func bothOf(t *testing.T, p pgtest.Pair) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), p.Both(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestFailover_Asynchronous: the standby that takes over lacks the last messages, and their leases. Messages that are enqueued
// later are delivered once, whatever the node had claimed; earlier deliveries at the same positions do not count for them.
func TestFailover_Asynchronous(t *testing.T) {
	t.Parallel()
	for name, hub := range map[string]bool{"with a hub": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			if _, err := queue.Ensure(t.Context(), p.Pool, "jobs", queue.Options{}); err != nil {
				t.Fatal(err)
			}
			pool := bothOf(t, p)
			q, err := queue.Lookup(t.Context(), pool, "jobs")
			if err != nil {
				t.Fatal(err)
			}
			cfg := queue.NodeConfig{}
			if hub {
				h := stream.NewHub(pool, stream.HubConfig{Poll: 100 * time.Millisecond})
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() { defer close(ended); h.Run(ctx) }()
				t.Cleanup(func() { cancel(); <-ended })
				cfg.Hub, cfg.Appender.Hub = h, h
			}
			n, _ := start(t, q, cfg)
			c := n.Consume(queue.ConsumerOptions{Credits: 500, Visibility: time.Minute})
			named := func(what string, count int) (names []string) {
				for i := range count {
					names = append(names, fmt.Sprintf("%s %d", what, i))
				}
				return names
			}
			enqueue(t, n, named("kept", 20)...)
			for _, d := range receive(t, c, 20) {
				if err := d.Ack(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			p.CatchUp(t)
			p.Detach(t)
			enqueue(t, n, named("lost", 100)...)
			lost := receive(t, c, 100)
			for _, d := range lost[:50] {
				if err := d.Ack(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			p.Promote(t)
			want := make(map[string]int)
			for _, name := range named("new", 100) {
				enqueueUntilDone(t, n, name)
				want[name] = 1
			}
			for _, d := range lost[50:] {
				err := d.Ack(t.Context())
				if err == nil {
					t.Errorf("a delivery of what is lost was acknowledged")
				}
			}
			for _, d := range receive(t, c, 100) {
				if want[string(d.Payload)]--; want[string(d.Payload)] < 0 {
					t.Errorf("%q is delivered", d.Payload)
				}
				if err := d.Ack(t.Context()); err != nil {
					t.Errorf("%q: %v", d.Payload, err)
				}
			}
		})
	}
}

// enqueueUntilDone enqueues a message, again while the servers change.
func enqueueUntilDone(t *testing.T, n *queue.Node, payload string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := n.Enqueue(ctx, queue.Message{Payload: []byte(payload)}); err != nil {
		t.Fatal(errors.Join(err, context.Cause(ctx)))
	}
}
