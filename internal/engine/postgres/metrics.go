package postgres

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidewire/tidewire/internal/ingest"
	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/queue"
	"github.com/tidewire/tidewire/standby"
	"github.com/tidewire/tidewire/stream"
)

// figures registers metrics that are fields of one snapshot. Each metric takes a
// new snapshot when it is read.
type figures[S any] struct {
	metrics  prometheus.Registerer
	snapshot func() S
}

// counter registers a value that never falls.
func (f figures[S]) counter(name, help string, value func(S) float64) {
	f.metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
		func() float64 { return value(f.snapshot()) }))
}

// gauge registers a value that rises and falls.
func (f figures[S]) gauge(name, help string, value func(S) float64) {
	f.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return value(f.snapshot()) }))
}

// registerLosses registers how many positions of a kind failovers have lost, as far as
// this server knew them.
func registerLosses(metrics prometheus.Registerer, kind string, lost func() int64) {
	metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "tidewire_history_lost_positions_total",
		Help:        "Positions that a failover has lost, as far as this server knew of them: messages of streams and queues that it appended to or that were followed here, chats and events that it stored.",
		ConstLabels: prometheus.Labels{"kind": kind},
	}, func() float64 { return float64(lost()) }))
}

// registerPeers registers what other servers of the cluster pass on to the Hubs.
func registerPeers(metrics prometheus.Registerer, hubs []*stream.Hub) {
	sum := func(of func(stream.PeersStats) uint64) func() float64 {
		return func() (total float64) {
			for _, hub := range hubs {
				total += float64(of(hub.PeersStats()))
			}
			return total
		}
	}
	metrics.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_cluster_pages_total", Help: "Pages of messages that other servers have committed and sent to this one."},
			sum(func(s stream.PeersStats) uint64 { return s.Pages })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "tidewire_cluster_holes_total", Help: "Pages that did not follow on what this server had, so that it read PostgreSQL."},
			sum(func(s stream.PeersStats) uint64 { return s.Holes })))
}

// registerHosts registers how many servers of the database's address are not
// used now.
func registerHosts(metrics prometheus.Registerer, pool *pgxpool.Pool) {
	f := figures[pg.HostStats]{metrics, func() pg.HostStats { return pg.HostsOf(pool) }}
	f.gauge("tidewire_postgres_refused_hosts", "PostgreSQL servers that answer and are not used: former primaries, and servers with other data.",
		func(s pg.HostStats) float64 { return float64(s.Refused) })
	f.gauge("tidewire_postgres_silent_hosts", "PostgreSQL servers that do not answer while another one of the same address does.",
		func(s pg.HostStats) float64 { return float64(s.Silent) })
}

// registerPool registers the use of the connection pool. Long waits for a connection
// show that the pool is too small, or PostgreSQL too slow.
func registerPool(metrics prometheus.Registerer, pool *pgxpool.Pool) {
	f := figures[*pgxpool.Stat]{metrics, pool.Stat}
	f.gauge("tidewire_postgres_connections", "Connections of the pool to PostgreSQL that are open.",
		func(s *pgxpool.Stat) float64 { return float64(s.TotalConns()) })
	f.gauge("tidewire_postgres_busy_connections", "Connections of the pool that are in use.",
		func(s *pgxpool.Stat) float64 { return float64(s.AcquiredConns()) })
	f.gauge("tidewire_postgres_max_connections", "Connections that the pool may open.",
		func(s *pgxpool.Stat) float64 { return float64(s.MaxConns()) })
	f.counter("tidewire_postgres_connection_waits_total", "How often a caller had to wait for a connection of the pool.",
		func(s *pgxpool.Stat) float64 { return float64(s.EmptyAcquireCount()) })
	f.counter("tidewire_postgres_connection_wait_seconds_total", "How long callers waited for a connection of the pool, in all.",
		func(s *pgxpool.Stat) float64 { return s.EmptyAcquireWaitTime().Seconds() })
}

// registerIngest registers the counts of /ws/ingest.
func registerIngest(metrics prometheus.Registerer, store *ingest.Ingester) {
	f := figures[ingest.Stats]{metrics, store.Stats}
	f.counter("tidewire_ingest_received_messages_total", "Messages received for ingest.",
		func(s ingest.Stats) float64 { return float64(s.Received) })
	f.counter("tidewire_ingest_received_bytes_total", "Payload bytes received for ingest.",
		func(s ingest.Stats) float64 { return float64(s.ReceivedBytes) })
	f.counter("tidewire_ingest_committed_messages_total", "Messages committed by ingest.",
		func(s ingest.Stats) float64 { return float64(s.Committed) })
	f.counter("tidewire_ingest_failed_messages_total", "Messages that could not be stored.",
		func(s ingest.Stats) float64 { return float64(s.Failed) })
	f.counter("tidewire_ingest_abandoned_messages_total", "Messages that were abandoned before PostgreSQL answered; they may be stored.",
		func(s ingest.Stats) float64 { return float64(s.Abandoned) })
	f.gauge("tidewire_ingest_inflight_messages", "Messages received and not yet answered.",
		func(s ingest.Stats) float64 { return float64(s.Inflight) })
}

// registerQueues registers the sums of this server's nodes of all queues.
func registerQueues(metrics prometheus.Registerer, store *queues) {
	f := figures[queue.NodeStats]{metrics, store.stats}
	f.counter("tidewire_queue_claimed_positions_total", "Positions of queues claimed by this server, also where nothing was written yet.",
		func(s queue.NodeStats) float64 { return float64(s.Claimed) })
	f.counter("tidewire_queue_released_positions_total", "Positions claimed by this server and released, for any server to claim.",
		func(s queue.NodeStats) float64 { return float64(s.Released) })
	f.counter("tidewire_queue_exhausted_messages_total", "Messages that became dead letters: after too many attempts, or by a nack with dead.",
		func(s queue.NodeStats) float64 { return float64(s.DeadLettered) })
	f.counter("tidewire_queue_rotations_total", "Journals of queues compacted by this server.",
		func(s queue.NodeStats) float64 { return float64(s.Rotations) })
	f.counter("tidewire_queue_vacuums_total", "Journals of queues vacuumed by this server.",
		func(s queue.NodeStats) float64 { return float64(s.Vacuums) })
	f.gauge("tidewire_queue_journal_rows", "Rows in the journals of the queues that this server has open, as far as it has read.",
		func(s queue.NodeStats) float64 { return float64(s.JournalRows) })
}

// registerStandby registers which server answers reads.
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
