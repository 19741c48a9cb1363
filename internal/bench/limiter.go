package bench

// The limits of a row, as Limiter names them.
const (
	LimitGenerator  = "generator"
	LimitServer     = "server CPU"
	LimitPostgreSQL = "PostgreSQL CPU"
	LimitRate       = "offered rate"
	LimitWaiting    = "round trips and commits"
)

const (
	// lagShare is how much of the 99th percentile of latencies may be the
	// generator's own lateness until the figures are about the generator.
	lagShare = 0.2
	// fullCore is how much of a core a generator may use, in cores: one that uses
	// all of one may be waiting for itself, in whatever is its only thread.
	fullCore = 0.95
	// fullMachine is how much of all cores is in use when CPU is what lacks.
	fullMachine = 0.85
	// fullRate is how much of an offered rate counts as all of it, and how much of
	// what was due has to arrive.
	fullRate = 0.99
)

// Limiter names what limited a row of these metrics on a machine of so many cores;
// offered is the rate it was asked for, of messages or, where there are none, of
// connections, or 0 for as fast as it goes. It goes by what is scarce, in this
// order: a generator that was late, or had a core's worth to do, is no measure of
// anything else; a rate that was kept, and of which nearly everything arrived,
// limits itself; CPU, where nearly all of it was in use, lacks him who used most;
// else everybody waited, for answers and for the disk.
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
