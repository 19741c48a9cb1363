package cli

import (
	"errors"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/tidewire/tidewire/internal/bench"
)

// Flags that contradict each other, or that what else is asked for has no use for, are
// refused: a result would be taken for one of what they say. A flag counts if it has another
// value than its default, since `tidewire bench run` gives all of them.

// changedFlags are the flags of the command whose values are not their defaults.
func changedFlags(ctx *kong.Context) map[string]bool {
	changed := make(map[string]bool)
	node := ctx.Selected()
	if node == nil {
		return changed
	}
	for _, f := range node.Flags {
		normal := reflect.New(f.Target.Type()).Elem()
		if f.HasDefault {
			token := kong.Token{Type: kong.FlagValueToken, Value: f.Default}
			if err := f.Parse(kong.ScanFromTokens(token), normal); err != nil {
				continue
			}
		}
		changed[f.Name] = !reflect.DeepEqual(normal.Interface(), f.Target.Interface())
	}
	return changed
}

// contradiction is found in a command line, or not.
type contradiction struct {
	found bool
	say   string // also what to do
}

// refuse is the error of the first that is found.
func refuse(all ...contradiction) error {
	for _, c := range all {
		if c.found {
			return exit(ExitUsage, "%w", errors.New(c.say))
		}
	}
	return nil
}

func (f ceilingFlags) contradiction(changed map[string]bool) error {
	return refuse(
		contradiction{changed["ceiling-start"] && !f.FindCeiling, "--ceiling-start is where --find-ceiling begins: give both"},
		contradiction{f.FindCeiling && f.CeilingStart <= 0, "--ceiling-start: want more than 0"},
	)
}

// maxServerBatch is the most messages of a request on /ws.
const maxServerBatch = 1000

func (f *queueFlags) contradiction(mode string, changed map[string]bool) error {
	queue := mode == "queue"
	silent := !queue && f.ConsumerGroups == 0
	has := func(names ...string) bool {
		return slices.ContainsFunc(f.Strategy, func(s string) bool { return slices.Contains(names, s) })
	}
	return errors.Join(f.ceilingFlags.contradiction(changed), refuse(
		contradiction{queue && changed["consumer-groups"], "--consumer-groups is of bench pubsub: a queue's readers share its messages; say how many with --readers"},
		contradiction{queue && changed["partitions"], "--partitions is of bench pubsub with --strategy counter-rows: leave it out"},
		contradiction{silent && (changed["readers"] || changed["read-batch"]), "nobody reads with --consumer-groups 0: leave out --readers and --read-batch, or give groups"},
		contradiction{silent && slices.ContainsFunc(f.Threshold, bench.Threshold.OfReading),
			"nobody reads with --consumer-groups 0: leave out the --threshold of what is read, or give groups"},
		contradiction{queue && f.Streams > 1 && changed["readers"] && f.Readers != f.Streams, "each of the --streams has one reader: leave out --readers"},
		contradiction{!queue && f.Streams > 1 && changed["readers"], "each of the --streams has one reader in each group: leave out --readers"},
		contradiction{f.Via == "server" && f.WriteBatch > maxServerBatch, "--write-batch: the server takes at most 1,000 messages in a request; give fewer with --via server"},
		contradiction{changed["partitions"] && changed["strategy"] && !has("counter-rows"), "--partitions is of counter-rows: add --strategy counter-rows, or leave it out"},
		contradiction{changed["partitions"] && f.Streams > 1, "--partitions and --streams exclude each other: counter-rows has no streams, and the others no partitions here"},
		contradiction{f.Linger > 0 && !has("lease", "log"), "--linger is of the strategies lease and log: leave it out"},
		contradiction{f.TuneTableVacuum && !has("skip-locked", "skip-locked-batch", "counter-rows"),
			"--tune-table-vacuum is of the textbook strategies: add one with --strategy, or leave it out"},
	), f.priceContradiction(changed))
}

func (f *queueFlags) priceContradiction(changed map[string]bool) error {
	p := f.priceFlags
	some := p.PricePerYear+p.PricePerHour+p.PricePerGBMonth+p.IOPS+p.PricePerIOPSMonth > 0
	return refuse(
		contradiction{p.PricePerYear > 0 && p.PricePerHour > 0, "--price-per-year and --price-per-hour are of the same machine: give one of them"},
		contradiction{(p.IOPS > 0) != (p.PricePerIOPSMonth > 0), "--iops and --price-per-iops-month go together: give both"},
		contradiction{some && f.FindCeiling, "--find-ceiling reckons no costs: leave out the prices, or find the rate with --target-cpu"},
		contradiction{changed["retention"] && !some, "--retention is for reckoning the disk's cost: give --price-per-gb-month too"},
	)
}

func (c *benchEventsCmd) contradiction(changed map[string]bool) error {
	has := func(names ...string) bool {
		return slices.ContainsFunc(c.Ops, func(op string) bool { return slices.Contains(names, op) })
	}
	alone := slices.Equal(slices.Compact(slices.Sorted(slices.Values(c.Ops))), []string{"projectionlimits"})
	return errors.Join(c.ceilingFlags.contradiction(changed), refuse(
		contradiction{changed["past-events"] && !has("appendif", "appendif-websocket"), "--past-events is of appendif and appendif-websocket: add one to --ops, or leave it out"},
		contradiction{changed["conflict-events"] && !has("appendif-conflict"), "--conflict-events is of appendif-conflict: add it to --ops, or leave it out"},
		contradiction{alone && changed["concurrency"], "projectionlimits has callers of its own: leave out --concurrency"},
		contradiction{alone && c.FindCeiling, "projectionlimits has no rate to find: leave out --find-ceiling, or add other --ops"},
	))
}

func (c *benchIngestCmd) contradiction(changed map[string]bool) error {
	has := func(modes ...string) bool {
		return slices.ContainsFunc(c.Modes, func(m string) bool { return slices.Contains(modes, m) })
	}
	running := c.URL != ""
	waits := c.ClosedLoop || c.Rate > 0 || c.FindCeiling
	return errors.Join(c.ceilingFlags.contradiction(changed), refuse(
		contradiction{c.Ack && (c.ClosedLoop || c.Rate > 0), "--closed-loop and --rate always ask for acknowledgements: leave out --ack"},
		contradiction{!waits && slices.ContainsFunc(c.Threshold, bench.Threshold.OfLatency),
			"a --threshold of latencies needs messages that wait for answers: add --closed-loop or --rate, or leave it out"},
		contradiction{running && (changed["modes"] || changed["workers"] || changed["batch"]), "--url measures a server that runs as it was started: leave out --modes, --workers and --batch"},
		contradiction{running && c.ServerLog, "--server-log is of servers that the benchmark starts: leave it out with --url"},
		contradiction{running && c.private(), "--url has its own database: name it with --database-url, and leave out --data-dir, --postgres, --pg-version and --pg-mirror"},
		contradiction{changed["workers"] && !has("buffered", "bulk"), "--workers is of buffered and bulk: add one to --modes, or leave it out"},
		contradiction{changed["batch"] && !has("bulk", "copy", "auto"), "--batch is of bulk, copy and auto: add one to --modes, or leave it out"},
	))
}

func (c *benchLanesCmd) contradiction(changed map[string]bool) error {
	return refuse(
		contradiction{c.Matrix && (changed["request-duration"] || changed["dummy-message-size"] || changed["dummy-message-duration"]),
			"--matrix has its own times and sizes: leave out --request-duration, --dummy-message-size and --dummy-message-duration"},
		contradiction{c.Dial && changed["latency"], "--latency is of a server that the benchmark starts: give it to the one that runs, and leave it out with --dial"},
	)
}

func (c *benchChatCmd) contradiction(changed map[string]bool) error {
	load := slices.Contains(c.Scenario, "load")
	return errors.Join(c.ceilingFlags.contradiction(changed), refuse(
		contradiction{!load && (changed["clients"] || changed["rate"] || changed["payload"] || changed["hold"]),
			"--clients, --rate, --payload and --hold are of load: run bench chat load, or shorten the others with --time-scale and --client-scale"},
		contradiction{c.FindCeiling && changed["clients"], "--find-ceiling takes as many clients as each rate needs: leave out --clients"},
	))
}
