package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/cluster"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

func entry(n int) cluster.Entry {
	return cluster.Entry{ID: fmt.Sprint("id", n), Cluster: "c", Address: fmt.Sprintf("10.0.0.%d:6222", n), Host: "h", Version: "v"}
}

// TestDirectory_TwoAtOnce: of two nodes that start at the same time, at least one finds the other, and both have one secret.
func TestDirectory_TwoAtOnce(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	for round := range 20 {
		var starting sync.WaitGroup
		found, secrets := make([]int, 2), make([]string, 2)
		for i := range 2 {
			starting.Go(func() {
				own := entry(i)
				own.Cluster = fmt.Sprint("c", round)
				own.ID += own.Cluster
				var err error
				if secrets[i], err = cluster.Secret(t.Context(), db.Pool, own.Cluster); err != nil {
					t.Error(err)
				}
				peers, err := cluster.OpenDirectory(db.Pool, own, slog.New(slog.DiscardHandler)).Refresh(t.Context())
				if err != nil {
					t.Error(err)
				}
				found[i] = len(peers)
			})
		}
		starting.Wait()
		if found[0]+found[1] == 0 {
			t.Error("neither has found the other")
		}
		if secrets[0] != secrets[1] || len(secrets[0]) < 20 {
			t.Errorf("secrets %q", secrets)
		}
	}
}

// TestDirectory_Refresh: a node finds the others of its cluster that are present, and not those that are gone.
func TestDirectory_Refresh(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	var directory *cluster.Directory // the last one
	open := func(e cluster.Entry) (addresses []string) {
		t.Helper()
		if _, err := cluster.Secret(t.Context(), db.Pool, e.Cluster); err != nil {
			t.Fatal(err)
		}
		directory = cluster.OpenDirectory(db.Pool, e, slog.New(slog.DiscardHandler))
		peers, err := directory.Refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range peers {
			addresses = append(addresses, p.Address)
		}
		return addresses
	}
	other := entry(9)
	other.Cluster = "d"
	open(entry(1))
	open(entry(2))
	open(other)
	if got := open(entry(3)); !slices.Equal(got, []string{"10.0.0.1:6222", "10.0.0.2:6222"}) {
		t.Errorf("found %v", got)
	}
	for id, age := range map[string]string{"id1": "30 seconds", "id2": "2 minutes"} {
		if _, err := db.Pool.Exec(t.Context(), `UPDATE tidewire.nodes SET seen_at = clock_timestamp() - $2::interval WHERE id = $1`, id, age); err != nil {
			t.Fatal(err)
		}
	}
	if got := open(entry(3)); len(got) > 0 {
		t.Errorf("found %v, want none: they are gone", got)
	}
	if got := directory.Others(); !slices.Equal(got, []string{"id1"}) {
		t.Errorf("others are %v, want the one that may hang", got)
	}
	all, err := cluster.List(t.Context(), db.Pool)
	var ids []string
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	if err != nil || !slices.Equal(ids, []string{"id1", "id3", "id9"}) {
		t.Errorf("listed %v, %v", ids, err)
	}
	if got := open(entry(2)); !slices.Equal(got, []string{"10.0.0.3:6222"}) {
		t.Errorf("a node that has returned found %v", got)
	}
	cfg := db.Pool.Config()
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" // as on a standby
	reading, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reading.Close)
	if peers, err := cluster.OpenDirectory(reading, entry(4), slog.New(slog.DiscardHandler)).Refresh(t.Context()); err == nil {
		t.Errorf("a node that cannot write its row found %v", peers)
	}
}

// TestDirectory_Outage: of all refreshes that fail in an outage, one is logged.
func TestDirectory_Outage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
		if err != nil {
			t.Fatal(err)
		}
		pool.Close()
		var log testkit.Log
		directory := cluster.OpenDirectory(pool, entry(1), slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		directory.Run(ctx, func(peers []cluster.Entry) { t.Errorf("found %v", peers) })
		if n := log.Count("can't be read"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}
