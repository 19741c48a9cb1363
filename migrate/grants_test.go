package migrate_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/stream"
)

var grantLine = regexp.MustCompile(`(?m)^GRANT [^;]* TO app;`)

// TestGrants_OfTheDocuments: a role that has just the rights that a page grants may do what the page is about.
func TestGrants_OfTheDocuments(t *testing.T) {
	t.Parallel()
	for page, calls := range map[string][]string{
		"watch-a-table.md": {`CREATE TABLE mine.orders (id int PRIMARY KEY)`, `SELECT tidewire.watch('mine.orders', 'orders')`, `INSERT INTO mine.orders VALUES (1)`,
			`UPDATE mine.orders SET id = 2`, `TRUNCATE mine.orders`, `SELECT tidewire.watch('mine.orders', 'orders', events => '{insert}')`, `SELECT tidewire.unwatch('mine.orders')`},
		"schedules.md": {`SELECT tidewire.schedule('s', '@daily', 'x', queue => 'jobs')`, `SELECT tidewire.enqueue_at('jobs', 'x', now(), name => 'r')`,
			`SELECT tidewire.publish_at('orders', 'x', now())`, `SELECT tidewire.unschedule('r')`},
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			db := migrated(t)
			if _, err := stream.Ensure(t.Context(), db.Pool, "orders", stream.Options{}); err != nil {
				t.Fatal(err)
			}
			if _, err := queue.Ensure(t.Context(), db.Pool, "jobs", queue.Options{}); err != nil {
				t.Fatal(err)
			}
			conn, err := db.Pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			exec := func(sql string) {
				t.Helper()
				if _, err := conn.Exec(context.WithoutCancel(t.Context()), sql); err != nil {
					t.Errorf("%s: %v", sql, err)
				}
			}
			text, err := os.ReadFile("../docs/how-to/" + page)
			if err != nil {
				t.Fatal(err)
			}
			role := strings.ToLower("app_" + conn.Conn().Config().Database)
			exec(`CREATE ROLE ` + role)
			defer exec(`RESET ROLE; DROP OWNED BY ` + role + `; DROP ROLE ` + role)
			exec(`CREATE SCHEMA mine AUTHORIZATION ` + role)
			for _, grant := range grantLine.FindAllString(string(text), -1) {
				exec(strings.Replace(grant, " TO app;", " TO "+role, 1))
			}
			exec(`SET ROLE ` + role)
			for _, call := range calls {
				exec(call)
			}
		})
	}
}
