package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/queue"
)

// TestFailover_Families: after a failover, a queue with priorities, and one that keeps the order of keys, deliver the messages
// that are enqueued then, each once, whatever was done with the lost ones: acknowledged, nacked, dead, or leased. Lost messages
// that were in memory may still be delivered. A unique message that is lost can be enqueued again.
func TestFailover_Families(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]queue.Options{"plain": {}, "priorities": {Priorities: 3}, "keys": {Partitions: 4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			p.Unsynchronised(t)
			if _, err := queue.Ensure(t.Context(), p.Pool, "jobs", opts); err != nil {
				t.Fatal(err)
			}
			pool := bothOf(t, p)
			q, err := queue.Lookup(t.Context(), pool, "jobs")
			if err != nil {
				t.Fatal(err)
			}
			n, _ := start(t, q, queue.NodeConfig{})
			c := n.Consume(queue.ConsumerOptions{Credits: 500, Visibility: time.Minute})
			one := func() *queue.Delivery {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ds, err := c.ReceiveUpTo(ctx, 1)
				if err != nil {
					t.Fatal(err)
				}
				return ds[0]
			}
			put := func(name string, i int, unique string) {
				t.Helper()
				m := queue.Message{Payload: fmt.Appendf(nil, "%s %d", name, i), Key: fmt.Sprint(i % 7)}
				if opts.Priorities > 0 {
					m.Priority = i % opts.Priorities
				}
				if unique != "" {
					m.Unique = queue.Unique{Key: unique, Period: 10 * time.Minute}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := n.Enqueue(ctx, m); err != nil {
					t.Fatal(name, i, err)
				}
			}
			for i := range 14 {
				put("kept", i, "")
			}
			for range 14 { // of one key one after the other
				mustAck(t, one())
			}
			p.CatchUp(t)
			p.Detach(t)
			put("lost", 100, "u")
			for i := range 34 {
				put("lost", i, "")
			}
			for i := range 7 { // one of each key
				d := one()
				switch i % 4 {
				case 0:
					mustAck(t, d)
				case 1:
					err = d.Nack(t.Context(), queue.NackOptions{Delay: time.Second})
				case 2:
					err = d.Nack(t.Context(), queue.NackOptions{Dead: true})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			p.Promote(t)
			want := make(map[string]int)
			for i := range 35 {
				unique := ""
				if i == 34 {
					unique = "u"
				}
				put("new", i, unique)
				want[fmt.Sprintf("new %d", i)]++
			}
			for left := 35; left > 0; {
				d := one()
				name := string(d.Payload)
				err := d.Ack(t.Context())
				switch _, isNew := want[name]; {
				case strings.HasPrefix(name, "lost"): // it was in memory: delivered, though no standby had it
					if err != nil && !errors.Is(err, queue.ErrLeaseLost) {
						t.Errorf("%q: %v", name, err)
					}
				case !isNew:
					t.Errorf("%q is delivered", name)
				case err != nil:
					t.Errorf("%q: %v", name, err)
				default:
					delete(want, name)
					left--
				}
			}
			for { // other messages in memory
				ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // longer than the pause of nacked messages
				ds, err := c.ReceiveUpTo(ctx, 1)
				cancel()
				if err != nil {
					break
				}
				if name := string(ds[0].Payload); !strings.HasPrefix(name, "lost") {
					t.Errorf("%q is delivered again", name)
				}
				if err := ds[0].Ack(t.Context()); err != nil && !errors.Is(err, queue.ErrLeaseLost) {
					t.Error(err)
				}
			}
			if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Leased+s.Delayed+s.Dead != 0 {
				t.Errorf("%+v, %v: want nothing left", s, err)
			}
		})
	}
}
