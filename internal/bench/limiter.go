package bench

// The names that Limiter returns.
const (
	LimitGenerator  = "generator"
	LimitServer     = "server CPU"
	LimitPostgreSQL = "PostgreSQL CPU"
	LimitRate       = "offered rate"
	LimitWaiting    = "round trips and commits"
)

const (
	// lagShare is the largest share of the 99th percentile of latencies that
	// may come from the lateness of the generator. Beyond it, the figures
	// describe the generator.
	lagShare = 0.2
	// fullCore is the number of cores at which a generator counts as the limit:
	// its only thread may then be the bottleneck.
	fullCore = 0.95
	// fullMachine is the share of all cores in use at which CPU counts as the limit.
	fullMachine = 0.85
	// fullRate is the share of an offered rate that counts as all of it, and the
	// share of due deliveries that must arrive.
	fullRate = 0.99
)

// Limiter names what limited a row with these metrics, on a machine with that many
// cores. offered is the requested rate of messages, or of connections if there are
// no messages; 0 means as fast as possible. It checks in this order: a generator
// that was late, or used a whole core, makes all other figures meaningless; if the
// rate was kept and nearly everything arrived, the rate is the limit; if nearly
// all CPU was in use, the process that used most is the limit; otherwise the limit
// is waiting, for answers and for the disk.
func Limiter(m map[string]float64, cores int, offered float64) string {
	seconds := m["seconds"]
	late, p99 := m["generator_late_p99_ms"], m["latency_p99_ms"]
	if late > 0 && p99 > 0 && late > lagShare*p99 {
		return LimitGenerator
	}
	done := m["messages_per_second"]
	if done == 0 {
		done = m["connections_per_second"]
	}
	kept := offered > 0 && done >= fullRate*offered && m["drop_rate"] <= 1-fullRate
	if seconds <= 0 {
		if kept {
			return LimitRate
		}
		return ""
	}
	used := map[string]float64{
		LimitGenerator: m["generator_cpu_seconds"] / seconds, LimitServer: m["server_cpu_seconds"] / seconds,
		LimitPostgreSQL: m["postgres_cpu_seconds"] / seconds,
	}
	if used[LimitGenerator] >= fullCore {
		return LimitGenerator
	}
	if kept {
		return LimitRate
	}
	most, all := LimitGenerator, 0.0
	for name, c := range used {
		all += c
		if c > used[most] {
			most = name
		}
	}
	if all >= fullMachine*float64(cores) {
		return most
	}
	return LimitWaiting
}
