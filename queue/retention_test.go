package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// TestNode_DroppedMessages: the oldest messages are dropped from the stream:
// the node logs that, and continues with the remaining ones.
func TestNode_DroppedMessages(t *testing.T) {
	slow(t)
	t.Parallel()
	db, q := setup(t, queue.Options{})
	var log testkit.Log
	n, _ := start(t, q, queue.NodeConfig{Lease: time.Hour, Log: slog.New(slog.NewTextHandler(&log, nil))})
	const messages, dropped = 20_000, 16_384 // the first segment
	enqueue(t, n, numbered(messages)...)
	c := n.Consume(queue.ConsumerOptions{Credits: 2})
	ds := receive(t, c, 2)
	mustNack(t, ds[0], queue.NackOptions{Delay: 3 * time.Second})
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), fmt.Sprintf(`SELECT tidewire.drop_segments(%d, %d)`, q.Stream().ID(), dropped))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mustAck(t, ds[1])
	c.Close()
	if s := statsOf(t, q); s.Ready+s.Leased == 0 {
		t.Errorf("stats %+v", s)
	}
	c = n.Consume(queue.ConsumerOptions{Credits: 20_000})
	seen := make(map[int64]bool)
	for len(seen) < messages-dropped {
		for _, d := range receive(t, c, 1) {
			seen[d.Position] = true
			if err := d.AckLater(); err != nil {
				t.Error(err)
			}
		}
	}
	wantDone(t, q)
	if log.Count("dropped") == 0 {
		t.Error("nothing in the log")
	}
}
