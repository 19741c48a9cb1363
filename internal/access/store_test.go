package access

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/internal/testkit"
	"github.com/tidewire/tidewire/migrate"
)

var migrated = pgtest.NewTemplate("migrated", func(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := migrate.Up(ctx, pool)
	return err
})

// TestStore_EffectsBeforeTheAnswer: an act is answered when its effects have begun, not when it is loaded.
func TestStore_EffectsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := new(Store) // which does not run
	if err := s.Open(t.Context(), migrated.Open(t).Pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	id, err := perform(t.Context(), s.pool, s.log, &act{actor: "ops", name: "user_disconnected", target: "ann"}, func(pgx.Tx) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	during := []error{}
	s.OnChange(func(auth.Change) { during = append(during, s.await(ended, id)) })
	s.reload = true
	if err := s.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(during) != 1 || !errors.Is(during[0], ErrNotApplied) {
		t.Errorf("before its effects it is answered with %v, want ErrNotApplied", during)
	}
	if err := s.await(ended, id); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestStore_FailedLoad: a load that fails is tried again soon, also without a notification.
func TestStore_FailedLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg, err := pgxpool.ParseConfig("postgres://127.0.0.1/nothing")
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		var log testkit.Log
		s := &Store{pool: pool, log: slog.New(slog.NewTextHandler(&log, nil)), due: make(chan struct{}, 1)}
		ctx, cancel := context.WithTimeout(t.Context(), loadEvery/2)
		defer cancel()
		s.want(func() { s.reload = true })
		s.Run(ctx)
		if n := log.Count("were not read"); n < 10 {
			t.Errorf("tried %d times in half of the time between two loads", n)
		}
	})
}
