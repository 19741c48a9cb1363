package cli

import (
	"fmt"
	"testing"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// TestNodes_Exist: a server that is not heard exists as long as its leases may last.
func TestNodes_Exist(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Pool.Exec(t.Context(), `
WITH c AS (INSERT INTO tidewire.clusters VALUES ('tides', 'secret') RETURNING name)
INSERT INTO tidewire.nodes (id, cluster, address, host, version, seen_at)
SELECT 'seen-' || age, name, '', '', '', clock_timestamp() - age * interval '1 second' FROM c, unnest('{5,16}'::int[]) AS age`); err != nil {
		t.Fatal(err)
	}
	n := nodes{Node: &cluster.Node{}, pool: db.Pool, known: newNodeList(db.Pool)}
	exist, err := n.Exist(t.Context(), []string{"seen-5", "seen-16", "never"})
	if got, want := fmt.Sprint(exist), "map[never:false seen-16:false seen-5:true]"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
