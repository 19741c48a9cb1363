package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/testkit"
)

// twoServers are the stores of two servers on one database, and a stream that is open in the first.
func twoServers(t *testing.T) (ctx context.Context, one, two *Engine) {
	t.Helper()
	db := migrated.Open(t)
	one, two = startEngine(t, db), startEngine(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	_, err := one.streams.Create(ctx, "s", nil)
	must(t, err, one.publish(ctx, "s"))
	return ctx, one, two
}

// makeAnew drops a stream and makes one of its name.
func (e *Engine) makeAnew(ctx context.Context, t *testing.T) {
	t.Helper()
	must(t, e.streams.Drop(ctx, "s"))
	_, err := e.streams.Create(ctx, "s", nil)
	must(t, err)
}

// TestStores_CommitToStreamMadeElsewhere: a dropped group is looked up again, also after a
// CommitLater.
func TestStores_CommitToStreamMadeElsewhere(t *testing.T) {
	t.Parallel()
	ctx, one, two := twoServers(t)
	one.streams.opened.open.MaxAge = time.Hour // longer than the test
	_, err := one.streams.Commit(ctx, "s", "g", 1)
	must(t, err)
	two.makeAnew(ctx, t)
	must(t, two.publish(ctx, "s"))
	testkit.Eventually(t, "the group that exists now has the offset", func() bool {
		must(t, one.streams.CommitLater(ctx, "s", "g", 1))
		groups, err := two.streams.Groups(ctx, "s", "", 10)
		must(t, err)
		return len(groups) == 1 && groups[0].Offset == 1
	})
	two.makeAnew(ctx, t)
	sub, err := one.streams.Subscribe(ctx, "s", engine.Start{Group: "g"})
	must(t, err)
	defer sub.Close()
	must(t, two.publish(ctx, "s"))
	page, err := sub.Next(ctx, 10)
	must(t, err)
	offset, err := one.streams.Commit(ctx, "s", "g", page[0].Position)
	must(t, err)
	if info, err := one.streams.Info(ctx, "s"); err != nil || offset != info.Head {
		t.Errorf("the group is at %d, %v; the stream at %d", offset, err, info.Head)
	}
}
