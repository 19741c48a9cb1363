package cli_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cli"
	"github.com/tidewire/tidewire/queue"
)

// TestQueueAlter changes only what is given.
func TestQueueAlter(t *testing.T) {
	t.Parallel()
	s := shell{t, migrated(t).URL}
	s.run("queue", "create", "jobs", "--priorities", "2", "--retry-max", "1m")
	if out := s.run("queue", "alter", "jobs", "--max-attempts", "3", "--retry-min", "500ms"); out != "max attempts: 3\nretry min: 500ms\nretry max: 1m0s\n" {
		t.Errorf("%s", out)
	}
	s.run("queue", "create", "jobs", "--priorities", "2", "--retry-max", "1m", "--max-attempts", "3", "--retry-min", "500ms")
	for _, bad := range []string{"", "--max-attempts -1", "--retry-min 9000h"} {
		s.in("", cli.ExitUsage, append([]string{"queue", "alter", "jobs"}, strings.Fields(bad)...)...)
	}
	s.in("", cli.ExitFailure, "queue", "alter", "none", "--max-attempts", "3")
}

// TestQueueDeadLetters prints, redrives and removes the dead letters that the flags select.
func TestQueueDeadLetters(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := shell{t, db.URL}
	s.run("queue", "create", "jobs")
	deadLetters(t, db.Pool, "a", "b", "a", "c")
	if out := s.run("queue", "peek", "jobs", "--dead", "--reason", "BAD a"); strings.Count(out, "\n") != 2 || !strings.Contains(out, `"reason":"bad a","died":"`) {
		t.Errorf("%s", out)
	}
	if out := s.run("queue", "peek", "jobs", "--dead", "--raw", "--key", "c", "--since", "1h"); out != "c\n" {
		t.Errorf("%s", out)
	}
	if out := s.run("queue", "redrive", "jobs", "--key", "a", "--before", "7d"); out != "redriven 0\n" {
		t.Errorf("%s", out)
	}
	if out := s.run("queue", "redrive", "jobs", "--key", "a"); out != "redriven 2\n" {
		t.Errorf("%s", out)
	}
	if out := s.run("queue", "purge-dead", "jobs", "--yes", "--reason", "b"); out != "purged 2\n" {
		t.Errorf("%s", out)
	}
	for _, bad := range []string{"peek jobs --key a", "redrive jobs --key a --position 1", "purge-dead jobs"} {
		s.in("", cli.ExitUsage, append([]string{"queue"}, strings.Fields(bad)...)...)
	}
}

// deadLetters makes dead letters of the queue jobs, with the texts as keys and payloads.
func deadLetters(t *testing.T, pool *pgxpool.Pool, texts ...string) {
	t.Helper()
	c, err := queue.Open(t.Context(), pool, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	q, err := c.Lookup(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if _, err := q.Enqueue(t.Context(), queue.Message{Key: text, Payload: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	consumer, err := q.Consume(queue.ConsumerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for n := 0; n < len(texts); {
		ds, err := consumer.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			n++
			if err := d.Nack(t.Context(), queue.NackOptions{Dead: true, Reason: "bad " + d.Key}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
