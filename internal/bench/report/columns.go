package report

import (
	"fmt"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// column is a column of a table: a heading, and the text of each row.
type column struct {
	head  string
	right bool
	cell  func(r bench.Row) string
}

// metric makes a column of one metric; rows without it have "-".
func metric(head, name string, format func(float64) string) column {
	return column{head, true, func(r bench.Row) string {
		v, ok := r.Metrics[name]
		if !ok {
			return "-"
		}
		return format(v)
	}}
}

// columns returns the columns of a scenario. Columns that no row of a result
// has are left out.
func columns(scenario string, base *bench.Row) []column {
	switch {
	case scenario == "ingest":
		return ingestColumns(base)
	case scenario == "chat-profiles":
		return profileColumns()
	case strings.HasPrefix(scenario, "chat-"):
		return chatColumns()
	case scenario == "queue" || scenario == "pubsub":
		return queueColumns()
	case scenario == "events":
		return eventsColumns()
	case scenario == "cluster":
		return clusterColumns()
	case scenario == "failover":
		return failoverColumns()
	case scenario == "lanes":
		return lanesColumns()
	default:
		return tripColumns()
	}
}

func nameColumn(head string) column {
	return column{head, false, func(r bench.Row) string { return r.Name }}
}

func descriptionColumn() column {
	return column{"description", false, func(r bench.Row) string { return r.Description }}
}

// notZero shows zeros as missing, so that a column with only zeros is left out.
func notZero(c column) column {
	cell := c.cell
	c.cell = func(r bench.Row) string {
		if text := cell(r); text != "0" {
			return text
		}
		return "-"
	}
	return c
}

// maxNote is the maximum length of a note in a table, in characters. The file
// has the whole note.
const maxNote = 100

func noteColumn() column {
	return column{"note", false, func(r bench.Row) string {
		if text := []rune(r.Note); len(text) > maxNote {
			return string(text[:maxNote]) + "…"
		}
		return r.Note
	}}
}

func ingestColumns(base *bench.Row) []column {
	return []column{
		nameColumn("mode"),
		descriptionColumn(),
		metric("s to last row", "seconds", fixed(3)),
		metric("msg/s", "messages_per_second", count),
		{"x naive", true, func(r bench.Row) string { return speedUp(r, base) }},
		metric("of raw COPY", "share_of_raw_copy", percent),
		metric("p50 ms", "latency_p50_ms", fixed(2)),
		metric("p99 ms", "latency_p99_ms", fixed(2)),
		metric("server CPU s", "server_cpu_seconds", fixed(2)),
		metric("PG CPU s", "postgres_cpu_seconds", fixed(2)),
		metric("gen CPU s", "generator_cpu_seconds", fixed(2)),
		metric("peak MiB", "server_peak_rss_bytes", mib),
		metric("commits", "write_transactions", count),
		metric("WAL B/msg", "wal_bytes_per_message", fixed(0)),
		metric("rows verified", "rows_verified", count),
	}
}

// tripColumns returns the columns of echo and idle.
func tripColumns() []column {
	return []column{
		nameColumn("target"),
		descriptionColumn(),
		metric("connections", "connections", count),
		metric("seconds", "seconds", fixed(3)),
		metric("msg/s", "messages_per_second", count),
		metric("p50 ms", "latency_p50_ms", fixed(2)),
		metric("p99 ms", "latency_p99_ms", fixed(2)),
		metric("conn/s", "connections_per_second", count),
		metric("KiB/conn", "server_rss_bytes_per_connection", kib),
		metric("server CPU s", "server_cpu_seconds", fixed(2)),
		metric("gen CPU s", "generator_cpu_seconds", fixed(2)),
		metric("peak MiB", "server_peak_rss_bytes", mib),
	}
}

func chatColumns() []column {
	return []column{
		nameColumn("target"),
		metric("msg/s", "messages_per_second", count),
		metric("offered", "offered", count),
		metric("accepted", "accepted", count),
		notZero(metric("not taken", "unsent", count)),
		metric("deliveries/s", "deliveries_per_second", count),
		metric("delivered", "received", count),
		notZero(metric("lost", "lost", count)),
		metric("lost share", "drop_rate", share),
		metric("errors", "errors", count),
		metric("connections", "connections", count),
		metric("peak", "peak_connections", count),
		metric("conn/s", "connections_per_second", fixed(1)),
		metric("p50 ms", "latency_p50_ms", fixed(2)),
		metric("p95 ms", "latency_p95_ms", fixed(2)),
		metric("p99 ms", "latency_p99_ms", fixed(2)),
		metric("connect p95 ms", "connect_latency_p95_ms", fixed(2)),
		metric("cores", "server_cpu_cores", fixed(2)),
		metric("CPU s/M", "server_cpu_seconds_per_million_deliveries", fixed(3)),
		metric("bytes/delivery", "wire_bytes_per_delivery", fixed(1)),
		metric("gen CPU s", "generator_cpu_seconds", fixed(1)),
		metric("peak MiB", "server_peak_rss_bytes", mib),
		metric("binary MiB", "binary_bytes", tenths),
		noteColumn(),
	}
}

func queueColumns() []column {
	return []column{
		nameColumn("strategy"),
		metric("W msg/s", "write_messages_per_second", count),
		metric("R msg/s", "read_messages_per_second", count),
		metric("W MiB/s", "write_bytes_per_second", mib),
		metric("R MiB/s", "read_bytes_per_second", mib),
		metric("write p50 ms", "write_latency_p50_ms", fixed(2)),
		metric("p99", "write_latency_p99_ms", fixed(2)),
		metric("read p50 ms", "read_latency_p50_ms", fixed(2)),
		metric("p99", "read_latency_p99_ms", fixed(2)),
		metric("end to end p50 ms", "end_to_end_latency_p50_ms", fixed(2)),
		metric("p95", "end_to_end_latency_p95_ms", fixed(2)),
		metric("p99", "end_to_end_latency_p99_ms", fixed(2)),
		metric("p99.9", "end_to_end_latency_p999_ms", fixed(1)),
		metric("max", "end_to_end_latency_max_ms", fixed(0)),
		metric("PG CPU", "postgres_cpu_share", percent),
		metric("server CPU", "server_cpu_share", percent),
		metric("client CPU", "generator_cpu_share", percent),
		metric("wire B/delivery", "wire_bytes_per_delivery", fixed(0)),
		metric("WAL B/msg", "wal_bytes_per_message", fixed(0)),
		metric("table B/msg", "table_bytes_per_message", fixed(0)),
		metric("index MiB", "index_bytes", mib),
		metric("dead tuples", "dead_tuples", count),
		metric("disk writes/s", "disk_writes_per_second", count),
		metric("last fifth", "last_fifth_share", percent),
		metric("GB/day", "gigabytes_per_day", fixed(1)),
		metric("disk GB", "disk_gigabytes", count),
		metric("cost/year", "cost_per_year", count),
		metric("cost/M msg", "cost_per_million_messages", fixed(4)),
		metric("drain s", "drain_seconds", fixed(1)),
		metric("rows verified", "rows_verified", count),
		metric("lost", "lost", count),
		metric("twice", "duplicated", count),
	}
}

func eventsColumns() []column {
	return []column{
		nameColumn("row"),
		metric("calls/s", "calls_per_second", count),
		metric("events/s", "events_per_second", count),
		metric("p50 ms", "latency_p50_ms", fixed(2)),
		metric("p95 ms", "latency_p95_ms", fixed(2)),
		metric("p99 ms", "latency_p99_ms", fixed(2)),
		metric("bytes/call", "bytes_per_call", count),
		metric("allocs/call", "allocs_per_call", count),
		metric("WAL B/event", "wal_bytes_per_event", count),
		metric("success", "success_rate", fixed(3)),
		metric("limit exceeded", "limit_exceeded_rate", fixed(3)),
		metric("PG CPU", "postgres_cpu_share", percent),
		metric("server CPU", "server_cpu_share", percent),
		metric("own CPU", "generator_cpu_share", percent),
		metric("other calls/s", "compare_calls_per_second", count),
		metric("other p50 ms", "compare_latency_p50_ms", fixed(2)),
		metric("other p99 ms", "compare_latency_p99_ms", fixed(2)),
		metric("other / this", "gain", fixed(2)),
	}
}

func lanesColumns() []column {
	return []column{
		nameColumn("variant: cell"),
		metric("requests", "sent", count),
		metric("mean ms", "latency_mean_ms", fixed(3)),
		metric("worst mean", "latency_mean_worst_ms", fixed(3)),
		metric("p50 ms", "latency_p50_ms", fixed(3)),
		metric("p99 ms", "latency_p99_ms", fixed(3)),
		metric("max ms", "latency_max_ms", fixed(2)),
		metric("seconds", "seconds", fixed(1)),
		metric("dummies MB/s", "bytes_per_second", megabytes),
		metric("dummies MB", "dummy_bytes", megabytes),
		metric("server CPU s", "server_cpu_seconds", fixed(2)),
		metric("gen CPU s", "generator_cpu_seconds", fixed(2)),
		metric("peak MiB", "server_peak_rss_bytes", mib),
	}
}

func megabytes(v float64) string { return fmt.Sprintf("%.0f", v/1e6) }

func speedUp(r bench.Row, base *bench.Row) string {
	const name = "messages_per_second"
	if base == nil || base.Metrics[name] == 0 || r.Metrics[name] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", r.Metrics[name]/base.Metrics[name])
}

// share formats a percentage so that a small value is not shown as 0.
func share(v float64) string {
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%.3g %%", 100*v)
}

func clusterColumns() []column {
	return []column{
		nameColumn("fault, or nodes"),
		metric("faults", "faults", count),
		metric("gaps told p50 ms", "told_p50_ms", fixed(0)),
		metric("max ms", "told_max_ms", fixed(0)),
		metric("presence right p50 ms", "presence_p50_ms", fixed(0)),
		metric("max ms", "presence_max_ms", fixed(0)),
		metric("messages/s", "messages_per_second", count),
		metric("sent", "sent", count),
		metric("acknowledged", "acknowledged", count),
		metric("delivered", "delivered", count),
		metric("told missing", "told", count),
		metric("PG cores", "postgres_cores", fixed(2)),
		metric("server cores", "server_cores", fixed(2)),
		notZero(metric("errors", "errors", count)),
	}
}

func failoverColumns() []column {
	return []column{
		nameColumn("replication, fault"),
		metric("promotions", "promotions", count),
		metric("pause p50 ms", "pause_p50_ms", fixed(0)),
		metric("pause max ms", "pause_max_ms", fixed(0)),
		metric("outage p50 ms", "outage_p50_ms", fixed(0)),
		metric("outage max ms", "outage_max_ms", fixed(0)),
		metric("acknowledged", "acknowledged", count),
		metric("lost", "lost", count),
		metric("told", "told", count),
		metric("delivered", "delivered", count),
		notZero(metric("redelivered", "redelivered", count)),
		notZero(metric("unfenced", "unfenced", count)),
		notZero(metric("errors", "errors", count)),
	}
}
