package queue_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/queue"
)

// run runs one of PostgreSQL's programs, and skips the test if the machine has
// none that fits the server.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	switch {
	case err == nil:
	case strings.Contains(string(said), "server version mismatch"):
		t.Skip(string(said))
	default:
		t.Errorf("%s: %v\n%s", name, err, said)
	}
}

// TestBackup_BesideRotations takes a backup that has to wait for another transaction's lock, with an older snapshot, while the
// journal is compacted repeatedly. The restored queue continues from the snapshot: messages that were acknowledged before are
// not delivered again, and all others are.
func TestBackup_BesideRotations(t *testing.T) {
	slow(t)
	t.Parallel()
	db := pgtest.Open(t)
	run(t, "pg_dump", "--schema-only", "--file="+os.DevNull, "--dbname="+db.URL) // is there one for this server?
	// Made first, so that the backup locks it before the journals.
	mustExec(t, db.Pool, `CREATE TABLE application (id int)`)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	q, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	holder, _ := start(t, q, queue.NodeConfig{RotateRows: 5})
	enqueue(t, holder, "held 1", "held 2", "held 3")
	receiveUpTo(t, holder.Consume(queue.ConsumerOptions{Credits: 3, Visibility: time.Hour}), 3)
	// work has messages handled by a node that compacts the journal at once.
	work := func(texts ...string) {
		_, far := elsewhere(t, db.URL, "jobs")
		n, stop := start(t, far, queue.NodeConfig{RotateRows: 5})
		defer stop()
		c := n.Consume(queue.ConsumerOptions{})
		for i := 0; i < len(texts) || n.Stats().Rotations == 0; i++ {
			mustEnqueue(t, n, keyed("", texts[i%len(texts)]))
			mustAck(t, receiveUpTo(t, c, 1)...)
		}
	}
	work(numbered(30)...)

	ddl := begin(t, db.Pool)
	mustExec(t, ddl, `ALTER TABLE application ADD COLUMN name text`)
	file := filepath.Join(t.TempDir(), "dump")
	var dumping sync.WaitGroup
	dumping.Go(func() { run(t, "pg_dump", "--format=custom", "--file="+file, "--dbname="+db.URL) })
	testkit.Eventually(t, "the backup waits for the lock, or cannot be made", func() bool {
		return t.Skipped() || t.Failed() || waitForLocks(t, db.Pool) > 0
	})
	for range 3 {
		work(numbered(20)...)
	}
	if err := ddl.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	dumping.Wait()
	if t.Skipped() || t.Failed() {
		return
	}

	restored := pgtest.Open(t)
	run(t, "pg_restore", "--exit-on-error", "--dbname="+restored.URL, file)
	_, q = elsewhere(t, restored.URL, "jobs")
	n, _ := start(t, q, queue.NodeConfig{})
	enqueue(t, n, "after the restore")
	c := n.Consume(queue.ConsumerOptions{})
	got := make(map[string]bool)
	for !got["after the restore"] || len(got) < 4 {
		for _, d := range receive(t, c, 1) {
			got[string(d.Payload)] = true
			mustAck(t, d)
		}
	}
	wantDone(t, q)
	if all := slices.Sorted(maps.Keys(got)); !slices.Equal(all, []string{"after the restore", "held 1", "held 2", "held 3"}) {
		t.Errorf("came %q", all)
	}
}
