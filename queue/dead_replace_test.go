package queue_test

import (
	"errors"
	"testing"

	"github.com/tidewire/tidewire/queue"
)

// TestReplaceDead: the dead letter goes and the new message comes, both or neither.
func TestReplaceDead(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]queue.Options{"plain": {}, "priorities": {Priorities: 3}, "partitions": {Partitions: 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts.MaxAttempts = 1
			_, q := setup(t, opts)
			n, _ := start(t, q, queue.NodeConfig{})
			c := n.Consume(queue.ConsumerOptions{})
			mustEnqueue(t, n, keyed("a", "bad"))
			d := receive(t, c, 1)[0]
			if err := d.Nack(t.Context(), queue.NackOptions{Dead: true, Reason: "bad"}); err != nil {
				t.Fatal(err)
			}
			var letters []queue.DeadLetter
			eventually(t, "a dead letter", func() bool {
				letters, _ = q.DeadLetters(t.Context(), 0, 10)
				return len(letters) == 1
			})
			at := letters[0].Position
			if done, err := q.ReplaceDead(t.Context(), at, graded(77, "never")); done || !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("priority 77: %v, %v", done, err)
			}
			if letters, _ = q.DeadLetters(t.Context(), 0, 10); len(letters) != 1 {
				t.Fatal("a message that is refused has taken the dead letter away")
			}
			if done, err := q.ReplaceDead(t.Context(), at+100, keyed("a", "never")); done || err != nil {
				t.Errorf("at another position: %v, %v", done, err)
			}
			for _, want := range []bool{true, false} {
				if done, err := q.ReplaceDead(t.Context(), at, keyed("a", "good")); done != want || err != nil {
					t.Errorf("%v, %v, want %v", done, err, want)
				}
			}
			d = receive(t, c, 1)[0]
			if string(d.Payload) != "good" || d.Attempt != 1 || d.Position == at {
				t.Errorf("got %q at %d, attempt %d", d.Payload, d.Position, d.Attempt)
			}
			mustAck(t, d)
			wantDone(t, q)
			if letters, err := q.DeadLetters(t.Context(), 0, 10); err != nil || len(letters) != 0 {
				t.Errorf("%d dead letters, %v", len(letters), err)
			}
		})
	}
}
