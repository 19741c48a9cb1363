package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// TestAnswersWhenReplicated: while the standby receives nothing, no call succeeds, whatever ends the
// waits of the commits. When the standby continues, the calls succeed, and their data is on the
// standby.
func TestAnswersWhenReplicated(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	together, alone := stream.AppenderConfig{}, stream.AppenderConfig{Linger: time.Millisecond}
	together.Writer.Timeout, alone.Writer.Timeout = timeout, timeout
	for name, end := range pgtest.WaitsEnd {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pgtest.StartPair(t, openMigrated)
			a, b := ensureOn(t, p.Pool, "a"), ensureOn(t, p.Pool, "b")
			appendTo, appendAlone := run(t, p.Pool, a, together), run(t, p.Pool, b, alone)
			appended := func(_ stream.Appended, err error) error { return err }
			position := func(_ int64, err error) error { return err }
			p.Answers(t, end, "append", func(ctx context.Context) error { return appended(appendTo.Append(ctx, stream.Message{})) })
			p.Answers(t, end, "append alone", func(ctx context.Context) error { return appended(appendAlone.Append(ctx, stream.Message{})) })
			elsewhere := run(t, p.Pool, ensureOn(t, p.Pool, "a"), alone)
			both := make(chan error, 2)
			p.Answers(t, end, "append as", func(ctx context.Context) error {
				for _, node := range []*stream.Appender{appendTo, elsewhere} {
					go func() {
						_, err := node.AppendAs(ctx, stream.RequestID{Client: "p"}, stream.Message{})
						both <- err
					}()
				}
				return <-both
			})
			if err := <-both; err != nil {
				t.Fatal(err)
			}
			if name != "deadline" { // the timeout of a commit is long
				groups, _ := runGroups(t, p.Pool, stream.GroupsConfig{})
				group := openGroup(t, groups, a, "g")
				p.Answers(t, end, "commit", func(ctx context.Context) error { return position(group.Commit(ctx, 2)) })
			}
			after := p.Promote(t)
			for name, want := range map[string]int{"a": 2, "b": 1} {
				s := lookUp(t, after, name)
				if page, err := s.Read(t.Context(), 0, 10); err != nil || len(page) != want {
					t.Errorf("stream %s after the promotion: %d messages, %v, want %d", name, len(page), err, want)
				}
			}
			if offset := value[int64](t, after, `SELECT coalesce(sum(committed), 0) FROM tidewire.read_offsets(ARRAY(SELECT id FROM tidewire.stream_group))`); name != "deadline" && offset != 2 {
				t.Errorf("offset after the promotion: %d, want 2", offset)
			}
		})
	}
}

// openMigrated migrates a database and opens a pool on it that detects cancelled waits for standbys.
func openMigrated(ctx context.Context, url string) (*pgxpool.Pool, error) {
	pool, err := pg.Open(ctx, pg.PoolConfig{URL: url})
	if err == nil {
		_, err = migrate.Up(ctx, pool)
	}
	return pool, err
}
