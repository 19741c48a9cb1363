package cli

import (
	"errors"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/tidewire/tidewire/internal/bench"
)

// Flags that contradict each other, or that have no effect together, are rejected: otherwise
// a reader would think that the result was measured with them. A flag counts if its value is
// not its default, because `tidewire bench run` passes all flags.

// changedFlags returns the flags of the command whose values are not their defaults.
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

// contradiction is a possible conflict between flags, and whether the command line has it.
type contradiction struct {
	found bool
	say   string // the error text, which ends with what to do
}

// refuse returns the error of the first contradiction that was found, or nil.
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
		contradiction{changed["ceiling-start"] && !f.FindCeiling, "--ceiling-start is the first rate of --find-ceiling: give both"},
		contradiction{f.FindCeiling && f.CeilingStart <= 0, "--ceiling-start: want more than 0"},
	)
}

// maxServerBatch is the maximum number of messages in one request on /ws.
const maxServerBatch = 1000

func (f *queueFlags) contradiction(mode string, changed map[string]bool) error {
	queue := mode == "queue"
	silent := !queue && f.ConsumerGroups == 0 && f.Subscribers == 0
	has := func(names ...string) bool {
		return slices.ContainsFunc(f.Strategy, func(s string) bool { return slices.Contains(names, s) })
	}
	return errors.Join(f.ceilingFlags.contradiction(changed), refuse(
		contradiction{queue && changed["consumer-groups"], "--consumer-groups is for bench pubsub: a queue's readers share its messages; set their number with --readers"},
		contradiction{queue && changed["partitions"], "--partitions is for bench pubsub with --strategy counter-rows: leave it out"},
		contradiction{queue && f.Subscribers > 0, "--subscribers is for bench pubsub: a queue's readers share its messages; set their number with --readers"},
		contradiction{f.Subscribers > 0 && changed["consumer-groups"], "--subscribers and --consumer-groups exclude each other: give one of them"},
		contradiction{silent && (changed["readers"] || changed["read-batch"]), "nobody reads with --consumer-groups 0: leave out --readers and --read-batch, or give groups"},
		contradiction{silent && slices.ContainsFunc(f.Threshold, bench.Threshold.OfReading),
			"nobody reads with --consumer-groups 0: leave out --threshold for metrics of reading, or give groups"},
		contradiction{queue && f.Streams > 1 && changed["readers"] && f.Readers != f.Streams, "each of the --streams has one reader: leave out --readers"},
		contradiction{!queue && f.Streams > 1 && changed["readers"], "each of the --streams has one reader in each group: leave out --readers"},
		contradiction{f.Via == "server" && f.WriteBatch > maxServerBatch, "--write-batch: the server takes at most 1,000 messages in a request; give fewer with --via server"},
		contradiction{changed["partitions"] && changed["strategy"] && !has("counter-rows"), "--partitions is for counter-rows: add --strategy counter-rows, or leave it out"},
		contradiction{changed["partitions"] && f.Streams > 1, "--partitions and --streams exclude each other: counter-rows has no streams, and the other strategies have no partitions in this benchmark"},
		contradiction{f.Linger > 0 && !has("lease", "log"), "--linger is for the strategies lease and log: leave it out"},
		contradiction{f.TuneTableVacuum && !has("skip-locked", "skip-locked-batch", "counter-rows"),
			"--tune-table-vacuum is for the textbook strategies: add one with --strategy, or leave it out"},
	), f.priceContradiction(changed))
}

func (f *queueFlags) priceContradiction(changed map[string]bool) error {
	p := f.priceFlags
	some := p.PricePerYear+p.PricePerHour+p.PricePerGBMonth+p.IOPS+p.PricePerIOPSMonth > 0
	return refuse(
		contradiction{p.PricePerYear > 0 && p.PricePerHour > 0, "--price-per-year and --price-per-hour are prices of the same machine: give one of them"},
		contradiction{(p.IOPS > 0) != (p.PricePerIOPSMonth > 0), "--iops and --price-per-iops-month go together: give both"},
		contradiction{some && f.FindCeiling, "--find-ceiling does not compute costs: leave out the prices, or find the rate with --target-cpu"},
		contradiction{changed["retention"] && !some, "--retention is for the cost of the disk: give --price-per-gb-month too"},
	)
}

func (c *benchEventsCmd) contradiction(changed map[string]bool) error {
	has := func(names ...string) bool {
		return slices.ContainsFunc(c.Ops, func(op string) bool { return slices.Contains(names, op) })
	}
	alone := slices.Equal(slices.Compact(slices.Sorted(slices.Values(c.Ops))), []string{"projectionlimits"})
	return errors.Join(c.ceilingFlags.contradiction(changed), refuse(
		contradiction{changed["past-events"] && !has("appendif", "appendif-websocket"), "--past-events is for appendif and appendif-websocket: add one to --ops, or leave it out"},
		contradiction{changed["conflict-events"] && !has("appendif-conflict"), "--conflict-events is for appendif-conflict: add it to --ops, or leave it out"},
		contradiction{alone && changed["concurrency"], "projectionlimits sets its own number of callers: leave out --concurrency"},
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
		contradiction{c.Ack && (c.ClosedLoop || c.Rate > 0), "--closed-loop and --rate always use acknowledgements: leave out --ack"},
		contradiction{!waits && slices.ContainsFunc(c.Threshold, bench.Threshold.OfLatency),
			"a --threshold for latencies needs acknowledged messages: add --closed-loop or --rate, or leave it out"},
		contradiction{running && (changed["modes"] || changed["workers"] || changed["batch"]), "--url measures a running server, whose settings are fixed: leave out --modes, --workers and --batch"},
		contradiction{running && c.ServerLog, "--server-log is for servers that the benchmark starts: leave it out with --url"},
		contradiction{running && c.private(), "a running server (--url) has its own database: give it with --database-url, and leave out --data-dir, --postgres, --pg-version and --pg-mirror"},
		contradiction{changed["workers"] && !has("buffered", "bulk"), "--workers is for buffered and bulk: add one to --modes, or leave it out"},
		contradiction{changed["batch"] && !has("bulk", "copy", "auto"), "--batch is for bulk, copy and auto: add one to --modes, or leave it out"},
	))
}

func (c *benchLanesCmd) contradiction(changed map[string]bool) error {
	return refuse(
		contradiction{c.Matrix && (changed["request-duration"] || changed["dummy-message-size"] || changed["dummy-message-duration"]),
			"--matrix has its own times and sizes: leave out --request-duration, --dummy-message-size and --dummy-message-duration"},
		contradiction{c.Dial && changed["latency"], "--latency is for a server that the benchmark starts: with --dial, leave it out and set it on the running server"},
	)
}

func (c *benchChatCmd) contradiction(changed map[string]bool) error {
	load := slices.Contains(c.Scenario, "load")
	return errors.Join(c.ceilingFlags.contradiction(changed), refuse(
		contradiction{!load && (changed["clients"] || changed["rate"] || changed["payload"] || changed["hold"]),
			"--clients, --rate, --payload and --hold are for load: run bench chat load, or shorten the others with --time-scale and --client-scale"},
		contradiction{c.FindCeiling && changed["clients"], "--find-ceiling chooses the number of clients for each rate: leave out --clients"},
	))
}
