package stream

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

// TestSharedRequests_OneForAll: one goroutine of the committer rotates the records of all shared
// streams of a pool; the Appender of a stream with its own tables rotates that stream's records.
func TestSharedRequests_OneForAll(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	c := joinCommitter(db.Pool)
	defer c.leave()
	for i := range 20 {
		s, err := Ensure(t.Context(), db.Pool, fmt.Sprint("s", i), Options{OwnTables: i == 19})
		if err != nil {
			t.Fatal(err)
		}
		a := NewAppender(db.Pool, s, AppenderConfig{})
		a.Start()
		running.Go(func() { <-ctx.Done(); a.Stop() })
		if _, err := a.Append(t.Context(), Message{}); err != nil {
			t.Fatal(err)
		}
		if i == 0 && c.keeper.recorded != nil {
			t.Error("records are kept before there are any")
		}
		if _, err := a.AppendAs(t.Context(), RequestID{Client: "p", Sequence: 1}, Message{}); err != nil {
			t.Fatal(err)
		}
		if keeps := a.keeper.recorded != nil; keeps != (i == 19) || c.keeper.recorded == nil {
			t.Errorf("stream %d: its Appender keeps records: %t, the committer does: %t", i, keeps, c.keeper.recorded != nil)
		}
	}
}
