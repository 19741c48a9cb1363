package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

// BenchmarkEnqueue_Unique has many callers enqueue unique messages at a time, as
// many as a connection of the gateway may have under way.
func BenchmarkEnqueue_Unique(b *testing.B) {
	db := pgtest.Open(b)
	if _, err := migrate.Up(b.Context(), db.Pool); err != nil {
		b.Fatal(err)
	}
	q, err := queue.Ensure(b.Context(), db.Pool, "jobs", queue.Options{})
	if err != nil {
		b.Fatal(err)
	}
	p := queue.NewEnqueuer(q, queue.EnqueuerConfig{})
	p.Start()
	defer p.Stop()
	turns := make(chan int)
	go func() {
		defer close(turns)
		for n := 0; b.Loop(); n++ {
			turns <- n
		}
	}()
	done := make(chan struct{})
	for range 64 {
		go func() {
			for n := range turns {
				if _, err := p.Enqueue(b.Context(), only(fmt.Sprint(n), "x", 10*time.Minute)); err != nil {
					b.Error(err)
				}
			}
			done <- struct{}{}
		}()
	}
	for range 64 {
		<-done
	}
}
