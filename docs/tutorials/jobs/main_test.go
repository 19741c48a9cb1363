package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/queue"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestTutorial_ShowsTheProgram: what the page shows is what is compiled here.
func TestTutorial_ShowsTheProgram(t *testing.T) {
	page, err := os.ReadFile("../jobs.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(program), "\n") // without the comment on the package
	if !strings.Contains(string(page), "```go\n"+text+"```") {
		t.Error("docs/tutorials/jobs.md shows another program than main.go")
	}
}

// TestTutorial_Runs: an order's job is done by a worker, at the second attempt.
func TestTutorial_Runs(t *testing.T) {
	db := pgtest.Open(t)
	t.Setenv("DATABASE_URL", db.URL)
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	os.Args = []string{"shop", "ann@example.com"}
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	mails, err := queue.Lookup(t.Context(), db.Pool, "mails")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := mails.Stats(t.Context()); err != nil || s.Ready != 1 {
		t.Fatalf("%+v, %v: want one job", s, err)
	}
	os.Args = []string{"shop"}
	working, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(working) }()
	testkit.Eventually(t, "the job is done", func() bool {
		s, err := mails.Stats(t.Context())
		return err == nil && s.Ready+s.Leased+s.Delayed == 0
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
