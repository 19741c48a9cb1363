package cli_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// TestSchedule_ServersKilled: servers share schedules, and one after another is killed. Each due time has one message, and none is missing.
func TestSchedule_ServersKilled(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := shell{t, db.URL}
	s.run("stream", "create", "ticks")
	for i := range 10 {
		s.run("schedule", "create", fmt.Sprint("tick ", i), "--cron", "@every 1s", "--stream", "ticks", "--catch-up", "all")
	}
	servers := []*program{serve(t, "--database-url", s.url), serve(t, "--database-url", s.url)}
	for n := range 4 {
		seen := dues(t, db.Pool)
		for end := time.Now().Add(time.Minute); dues(t, db.Pool) < seen+20; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("no more messages are written")
			}
		}
		servers[n%2].cmd.Process.Kill()
		<-servers[n%2].done
		servers[n%2] = serve(t, "--database-url", s.url)
	}
	var wrong string
	err := db.Pool.QueryRow(t.Context(), `
		WITH ticks AS (
			SELECT headers ->> 'tidewire_schedule' AS name, (headers ->> 'tidewire_schedule_due')::timestamptz AS due FROM tidewire.shared_message
			WHERE stream = (SELECT id FROM tidewire.stream WHERE name = 'ticks')
		)
		SELECT coalesce(string_agg(format('%s: %s messages for %s due times in %s s', name, n, dues, seconds), '; '), '') FROM (
			SELECT name, count(*) AS n, count(DISTINCT due) AS dues, extract(epoch FROM max(due) - min(due))::int + 1 AS seconds FROM ticks GROUP BY name
		) AS t WHERE n <> dues OR n <> seconds`).Scan(&wrong)
	if err != nil || wrong != "" {
		t.Errorf("%s, %v", wrong, err)
	}
}

// dues returns how many messages the stream of the test has.
func dues(t *testing.T, pool *pgxpool.Pool) int64 {
	t.Helper()
	ticks, err := stream.Lookup(t.Context(), pool, "ticks")
	if err != nil {
		t.Fatal(err)
	}
	head, err := ticks.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}
