package cli

import (
	"cmp"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/standby"
)

// openStandby returns the standby that the user named, or nil. The standby need not be reachable.
func (c *serveCmd) openStandby(p *process, pool *pgxpool.Pool) (*standby.Reader, error) {
	url := cmp.Or(c.ReadURL, p.Getenv("DATABASE_READ_URL"))
	if url == "" {
		return nil, nil
	}
	reader, err := standby.Open(p.ctx, pool, standby.Config{URL: url, Log: p.log})
	if err != nil {
		return nil, exit(ExitUsage, "--read-url: %w; want postgres://USER:PASSWORD@HOST:PORT/DATABASE", err)
	}
	return reader, nil
}

// closeStandby closes the connections to the standby.
func (c *serveCmd) closeStandby(reader *standby.Reader) error {
	if reader == nil {
		return nil
	}
	return c.stop.Close("closing the connections to the standby", reader.Close)
}
