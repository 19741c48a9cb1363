package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

// TestNack_RetriesThenDead nacks a message until it is dead, and redrives it.
func TestNack_RetriesThenDead(t *testing.T) {
	t.Parallel()
	db := inShared(t)
	q := ensureShared(t, db, queue.Options{MaxAttempts: 3, RetryMin: 20 * time.Millisecond})
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	enqueue(t, n, "bad", "good")
	ds := receive(t, c, 2)
	mustAck(t, ds[1])
	for attempt := 1; ; attempt++ {
		if ds[0].Attempt != attempt || string(ds[0].Payload) != "bad" {
			t.Errorf("got %q, attempt %d, want bad, %d", ds[0].Payload, ds[0].Attempt, attempt)
		}
		refused := time.Now()
		mustNack(t, ds[0], queue.NackOptions{Reason: fmt.Sprint("try ", attempt, "\x00\xff")})
		if attempt == 3 {
			break
		}
		ds = receive(t, c, 1)
		if took, least := time.Since(refused), 10*time.Millisecond<<(attempt-1); took < least {
			t.Errorf("attempt %d came after %v, want at least %v", attempt+1, took, least)
		}
	}
	wantNothing(t, c, 200*time.Millisecond)
	letters, err := q.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(letters) != 1 || string(letters[0].Payload) != "bad" || letters[0].Attempts != 3 || letters[0].Reason != "try 3??" {
		t.Fatalf("dead letters %+v, %v", letters, err)
	}
	if s := statsOf(t, q); s.Dead != 1 || s.Ready+s.Leased+s.Delayed != 0 {
		t.Errorf("stats %+v; want one dead", s)
	}
	for positions, want := range map[int64]int64{99: 0, letters[0].Position: 1} {
		if got, err := q.Redrive(t.Context(), positions); err != nil || got != want {
			t.Errorf("redriven at %d: %d, %v; want %d", positions, got, err, want)
		}
	}
	again := receive(t, c, 1)
	if again[0].Attempt != 1 {
		t.Errorf("redriven as attempt %d, want 1", again[0].Attempt)
	}
	mustAck(t, again[0])
	if rows := count(t, db.Pool, `SELECT count(*) FROM tidewire.queue_side WHERE queue = $1`, q.Stream().ID()); rows != 0 {
		t.Errorf("%d rows of deferred messages, want none", rows)
	}
}

// TestNack_DeadAtOnce: a message becomes dead by a nack, and by too many deliveries without an
// answer.
func TestNack_DeadAtOnce(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{MaxAttempts: 2})
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{Visibility: 2 * time.Second})
	enqueue(t, n, "refused", "ignored")
	mustNack(t, receive(t, c, 2)[0], queue.NackOptions{Dead: true})
	if ds := receive(t, c, 1); ds[0].Attempt != 2 {
		t.Errorf("attempt %d, want 2", ds[0].Attempt)
	}
	testkit.Eventually(t, "both are dead", func() bool { return statsOf(t, q).Dead == 2 })
	letters, err := q.DeadLetters(t.Context(), 0, 10)
	if err != nil || len(letters) != 2 || letters[1].Attempts != 2 || letters[1].Reason != "not acknowledged in time" {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
	if counted := n.Stats().DeadLettered; counted != 2 {
		t.Errorf("%d dead letters are counted, want 2", counted)
	}
	if got, err := q.Redrive(t.Context()); err != nil || got != 2 {
		t.Errorf("redriven: %d, %v; want all", got, err)
	}
	receive(t, c, 2)
}

// TestEnqueue_Due delivers a delayed message when it is due, and not before.
func TestEnqueue_Due(t *testing.T) {
	t.Parallel()
	q := setupShared(t, queue.Options{})
	n, _ := start(t, q, queue.NodeConfig{})
	c := n.Consume(queue.ConsumerOptions{})
	due := time.Now().Add(500 * time.Millisecond)
	mustEnqueue(t, n,
		queue.Message{Payload: []byte("later"), Headers: []byte(`{"a": 1}`), Due: due}, queue.Message{Payload: []byte("never"), Due: due.Add(time.Hour)},
		queue.Message{Payload: []byte("now")}, queue.Message{Payload: []byte("past"), Due: due.Add(-time.Hour)})
	var got []string
	for range 3 {
		d := receiveUpTo(t, c, 1)[0]
		if text := string(d.Payload); text == "never" || text == "later" && time.Now().Before(due) || d.Attempt != 1 {
			t.Errorf("%q, attempt %d, came %v early", text, d.Attempt, time.Until(due))
		}
		got = append(got, string(d.Payload))
		mustAck(t, d)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"later", "now", "past"}) {
		t.Errorf("came %q", got)
	}
	for _, headers := range []string{`null`, `[]`, `{`} {
		m := queue.Message{Headers: []byte(headers), Due: due}
		if _, err := n.Enqueue(t.Context(), m); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("headers %s: %v, want ErrInvalid", headers, err)
		}
	}
}

// TestEnqueue_StrangeDue: messages with times that Go can read and PostgreSQL
// cannot, or JSON cannot write, must not stop the Node.
func TestEnqueue_StrangeDue(t *testing.T) {
	t.Parallel()
	eachKind(t, queue.Options{}, func(t *testing.T, _ pgtest.DB, q *queue.Queue) {
		n, _ := start(t, q, queue.NodeConfig{})
		c := n.Consume(queue.ConsumerOptions{})
		for i, due := range []string{"2999-01-01T00:00:00+23:00", "2999-01-01T00:00:00-23:59", "9999-12-31T23:59:59.999999999-20:00"} {
			mustEnqueue(t, n, queue.Message{Key: fmt.Sprint(i), Headers: []byte(`{"tidewire_due": "` + due + `"}`)})
		}
		enqueue(t, n, "now")
		ds := receive(t, c, 1)
		if string(ds[0].Payload) != "now" {
			t.Errorf("got %q before it is due", ds[0].Headers)
		}
		mustAck(t, ds...)
		if q.Options().Partitions == 0 {
			testkit.Eventually(t, "the others are deferred", func() bool { return statsOf(t, q).Delayed == 3 })
		}
		wantNothing(t, c, 50*time.Millisecond)
		for _, due := range []time.Time{time.Unix(1<<40, 0), time.Date(9999, 12, 31, 20, 0, 0, 0, time.FixedZone("", -12*3600))} {
			if _, err := n.Enqueue(t.Context(), queue.Message{Due: due}); !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("due %v: %v, want ErrInvalid", due, err)
			}
		}
	})
}
