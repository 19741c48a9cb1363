package cli

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/embedpg"
)

// withPool runs work on the database that the user named; or on the private one,
// beside a server that runs on it if one does, or else started for that time.
func (f databaseFlags) withPool(p *process, work func(pool *pgxpool.Pool) error) (err error) {
	db, err := f.attach(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop(context.WithoutCancel(p.ctx))) }()
	pool, err := db.connect(p.ctx, p, 4)
	if err != nil {
		return err
	}
	defer pool.Close()
	return work(pool)
}

// attach is open for a command that may come beside a server.
func (f databaseFlags) attach(p *process) (*database, error) {
	if _, given := f.given(p); !given {
		s, err := embedpg.Status(p.ctx, f.DataDir)
		if err != nil {
			return nil, explainEmbedded(err)
		}
		if s.Running {
			return &database{url: s.URL}, nil
		}
	}
	return f.open(p)
}
