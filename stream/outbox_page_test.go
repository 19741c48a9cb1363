package stream_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// TestPublish_Page: a role with the grants of docs/how-to/publish-from-sql.md, and no others, publishes as the page shows. A text in place of
// bytes does what the page warns of.
func TestPublish_Page(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/publish-from-sql.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks of SQL, want the example and the grants", len(blocks))
	}
	db, s := ensure(t)
	role := "app_" + dbName(t, db)
	conn, err := db.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	exec(t, conn, `CREATE ROLE `+role)
	exec(t, conn, strings.ReplaceAll(blocks[1][1], " app;", " "+role+";"), pgx.QueryExecModeSimpleProtocol)
	exec(t, conn, `CREATE TABLE public.orders (id int PRIMARY KEY, total numeric)`)
	exec(t, conn, `GRANT INSERT ON public.orders TO `+role)

	exec(t, conn, `SET ROLE `+role)
	exec(t, conn, blocks[0][1], pgx.QueryExecModeSimpleProtocol)
	exec(t, conn, `SELECT tidewire.publish('orders', NULL, NULL, '{"a":"C:\\temp"}')`)
	if _, err := conn.Exec(t.Context(), `SELECT tidewire.publish('orders', NULL, NULL, '{"a":"x\ny"}')`); pg.Code(err) != "22P02" {
		t.Errorf("another text with a backslash: %v, want that it is no bytea", err)
	}
	exec(t, conn, `RESET ROLE`)
	wantPayloads(t, "stored", payloads(t, everything(t, s), nil), `{"id":17,"total":9.50}`, `{"a":"C:\temp"}`)
	exec(t, conn, `DROP OWNED BY `+role)
	exec(t, conn, `DROP ROLE `+role)
}
