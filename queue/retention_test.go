package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

// TestRetention_NotOfAQueue: a queue's stream gets no policy, and a stream with
// one does not become a queue.
func TestRetention_NotOfAQueue(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	err := q.Stream().SetRetention(t.Context(), stream.Retention{MaxAge: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "belongs to a queue") {
		t.Errorf("retention of a queue's stream: %v", err)
	}
	if err := q.Stream().SetRetention(t.Context(), stream.Retention{}); err != nil {
		t.Errorf("keeping everything: %v", err)
	}
	for _, name := range []string{"aged", "aged family/1"} {
		s, err := stream.Ensure(t.Context(), db.Pool, name, stream.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetRetention(t.Context(), stream.Retention{MaxAge: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	for name, opts := range map[string]queue.Options{"aged": {}, "aged family": {Priorities: 2}} {
		if _, err := queue.Ensure(t.Context(), db.Pool, name, opts); !errors.Is(err, queue.ErrStreamInUse) || !strings.Contains(err.Error(), "retention policy") {
			t.Errorf("queue of %s: %v", name, err)
		}
	}
}

// TestNode_DroppedMessages: the oldest messages are dropped from the stream:
// the node logs that, and continues with the remaining ones.
func TestNode_DroppedMessages(t *testing.T) {
	t.Parallel()
	db, q := setup(t, queue.Options{})
	var log lines
	n, _ := start(t, q, queue.NodeConfig{Log: slog.New(slog.NewTextHandler(&log, nil))})
	const messages, dropped = 20_000, 16_384 // the first segment
	enqueue(t, n, numbered(messages)...)
	c := n.Consume(queue.ConsumerOptions{Credits: 2})
	ds := receive(t, c, 2)
	mustNack(t, ds[0], queue.NackOptions{Delay: 500 * time.Millisecond})
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), fmt.Sprintf(`SELECT tidewire.drop_segments(%d, %d)`, q.Stream().ID(), dropped))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	mustAck(t, ds[1])
	c.Close()
	if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Leased == 0 {
		t.Errorf("stats %+v, %v", s, err)
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
	if log.count("dropped") == 0 {
		t.Error("nothing in the log")
	}
}
