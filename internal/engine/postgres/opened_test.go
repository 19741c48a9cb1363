package postgres_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/engine/postgres"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
)

// opened is an engine that runs, on a database of its own.
func opened(t *testing.T) (engine.Engine, pgtest.DB) {
	t.Helper()
	db := pgtest.Open(t)
	if _, err := migrate.Up(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	e, err := postgres.Open(t.Context(), postgres.Config{Pool: db.Pool, URL: db.URL, Stores: true, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(t.Context())
	t.Cleanup(func() { e.Stop(context.Background()) })
	return e.Serves(), db
}
