package cli

import (
	"cmp"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/standby"
)

// openStandby returns the standby that the user named, or nil. It need not be there.
func (c *serveCmd) openStandby(p *process, pool *pgxpool.Pool, cfg *gateway.Config) (*standby.Reader, error) {
	url := cmp.Or(c.ReadURL, p.Getenv("DATABASE_READ_URL"))
	if url == "" {
		return nil, nil
	}
	reader, err := standby.Open(p.ctx, pool, standby.Config{URL: url, Log: p.log})
	if err != nil {
		return nil, exit(ExitUsage, "--read-url: %w; want postgres://USER:PASSWORD@HOST:PORT/DATABASE", err)
	}
	registerStandby(cfg.Metrics, reader)
	cfg.Remark = func() string {
		if problem := reader.Problem(); problem != "" {
			return "the standby is not read: " + problem
		}
		return ""
	}
	return reader, nil
}

// closeStandby closes the connections to the standby.
func (c *serveCmd) closeStandby(reader *standby.Reader) error {
	if reader == nil {
		return nil
	}
	return c.closeInTime("closing the connections to the standby", reader.Close)
}

// registerStandby tells where reads go.
func registerStandby(metrics prometheus.Registerer, reader *standby.Reader) {
	for server, value := range map[string]func(standby.Stats) uint64{
		"primary": func(s standby.Stats) uint64 { return s.Primary },
		"standby": func(s standby.Stats) uint64 { return s.Standby },
	} {
		metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tidewire_reads_total", Help: "Pages of messages and events that a standby might have answered, by the server that did. Only with --read-url.",
			ConstLabels: prometheus.Labels{"server": server},
		}, func() float64 { return float64(value(reader.Stats())) }))
	}
	f := figures[standby.Stats]{metrics, reader.Stats}
	f.gauge("tidewire_standby_used", "1 if reads may go to the standby of --read-url, 0 if all go to the primary.", func(s standby.Stats) float64 {
		if s.Used {
			return 1
		}
		return 0
	})
}
