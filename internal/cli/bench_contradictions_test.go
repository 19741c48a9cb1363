package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestBench_Contradictions: each is rejected with a sentence that names the flag to change.
func TestBench_Contradictions(t *testing.T) {
	t.Parallel()
	for line, say := range map[string]string{
		"queue --consumer-groups 0":                                  "bench pubsub",
		"queue --partitions 4":                                       "--partitions",
		"queue --ceiling-start 10":                                   "--find-ceiling",
		"queue --find-ceiling --ceiling-start 0":                     "more than 0",
		"queue --find-ceiling --throttle-writes 10":                  "exclude each other",
		"queue --find-ceiling --price-per-year 10":                   "--target-cpu",
		"queue --find-ceiling --target-cpu 50%":                      "exclude each other",
		"queue --streams 20 --readers 3":                             "--readers",
		"pubsub --streams 20 --readers 3":                            "--readers",
		"queue --via server --write-batch 1001":                      "--write-batch",
		"queue --linger 1ms --strategy skip-locked":                  "--linger",
		"queue --linger 1ms --via server":                            "--linger",
		"queue --tune-table-vacuum":                                  "--strategy",
		"queue --price-per-year 1 --price-per-hour 1":                "give one",
		"queue --iops 3000":                                          "--price-per-iops-month",
		"queue --retention 24h":                                      "--price-per-gb-month",
		"queue --warm-up=-1s":                                        "--warm-up",
		"queue --host x --data-dir /tmp/x":                           "--data-dir",
		"queue --database-url postgres://x --postgres system":        "--postgres",
		"pubsub --consumer-groups 0 --readers 4":                     "--readers",
		"pubsub --consumer-groups 0 --read-batch 4":                  "--read-batch",
		"pubsub --consumer-groups 0 --threshold end_to_end_p99<25ms": "--threshold",
		"queue --out /dev/null/result.json":                          "--out",
		"queue --out /":                                              "name a file",
		"pubsub --strategy log --partitions 4":                       "counter-rows",
		"pubsub --streams 20 --partitions 4":                         "exclude each other",
		"pubsub --linger 1ms --strategy counter-rows":                "--linger",
		"events --ceiling-start 10":                                  "--find-ceiling",
		"events --ops append --past-events 7":                        "appendif",
		"events --ops append --conflict-events 7":                    "appendif-conflict",
		"events --ops projectionlimits --concurrency 7":              "--concurrency",
		"events --ops projectionlimits --find-ceiling":               "--find-ceiling",
		"events --find-ceiling --compare-database postgres://x":      "exclude each other",
		"events --warm-up=-1s":                                       "--warm-up",
		"ingest --ceiling-start 10":                                  "--find-ceiling",
		"ingest --closed-loop --rate 5":                              "exclude each other",
		"ingest --closed-loop --ack":                                 "--ack",
		"ingest --rate 5 --ack":                                      "--ack",
		"ingest --rate=-5":                                           "--rate",
		"ingest --url ws://x --modes auto":                           "--modes",
		"ingest --url ws://x --workers 2":                            "--workers",
		"ingest --url ws://x --server-log":                           "--server-log",
		"ingest --url ws://x --data-dir /tmp/x":                      "--data-dir",
		"ingest --modes auto --workers 2":                            "--workers",
		"ingest --modes naive --batch 2":                             "--batch",
		"lanes --matrix --request-duration 1ms":                      "--request-duration",
		"lanes --matrix --dummy-message-size 1MB":                    "--dummy-message-size",
		"lanes --matrix --dial":                                      "--dial",
		"lanes --dial --latency low":                                 "--latency",
		"chat load --ceiling-start 10":                               "--find-ceiling",
		"chat load --find-ceiling --clients 50":                      "--clients",
		"chat load --clients 1":                                      "--clients",
		"chat load --mode soak120":                                   "--hold",
		"chat steady --find-ceiling":                                 "load",
		"chat steady --clients 50":                                   "--client-scale",
		"chat churn --hold 5s":                                       "bench chat load",
	} {
		code, _, errOut := run(t, nil, append([]string{"bench"}, strings.Fields(line)...)...)
		if code != cli.ExitUsage || !strings.Contains(errOut, say) {
			t.Errorf("%s: exit code %d, want %d and %q: %s", line, code, cli.ExitUsage, say, errOut)
		}
	}
	database := func(name string) string { return map[string]string{"DATABASE_URL": "postgres://x"}[name] }
	if code, _, errOut := run(t, database, "bench", "queue", "--data-dir", "/tmp/x"); code != cli.ExitUsage || !strings.Contains(errOut, "DATABASE_URL") {
		t.Errorf("with DATABASE_URL: exit code %d: %s", code, errOut)
	}
}

// TestBenchQueue_PublishedCommandLines: the command lines of the published benchmark
// of queues on PostgreSQL are accepted unchanged. They fail because their database
// does not exist.
func TestBenchQueue_PublishedCommandLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"--writers=50 --readers=50 --duration=120s --payload=1024 --report=5s",
		"--writers=50 --readers=50 --duration=120s --payload=1024 --report=5s --throttle_writes 4200",
		"--writers=10 --readers=15 --duration=120s --payload=1024 --report=5s --throttle_writes=2900",
		"--report=5s --write-batch 100 --read-batch 200 --writers=10 --readers=4 --consumer-groups 5 --mode=pubsub --partitions 4 --duration=120s --throttle_writes=5000",
		"--report=5s --write-batch=200 --read-batch=200 --writers=100 --readers=30 --consumer-groups=5 --mode=pubsub --partitions=30 --duration=120s --throttle_writes=250000",
	} {
		args := "bench queue --host=127.0.0.1 --port=1 --db=benchmark --user=postgres --password=postgres " + line
		if code, _, errOut := run(t, nil, strings.Fields(args)...); code != cli.ExitDatabase {
			t.Errorf("%s: exit code %d, want %d: %s", line, code, cli.ExitDatabase, errOut)
		}
	}
}

// TestBench_FlagsAtTheirDefaults do not count as contradictions, because tidewire bench run passes
// all flags.
func TestBench_FlagsAtTheirDefaults(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"queue --consumer-groups=5 --partitions=1 --retention=168h0m0s --ceiling-start=1000 --warm-up=2s --readers=15",
		"pubsub --consumer-groups=0 --readers=15", "events --ops=append --past-events=100 --conflict-events=1 --ceiling-start=1000",
		"ingest --modes=auto --workers=4",
	} {
		args := append(append([]string{"bench"}, strings.Fields(line)...), "--database-url", "postgres://127.0.0.1:1/x")
		if code, _, errOut := run(t, nil, args...); code != cli.ExitDatabase {
			t.Errorf("%s: exit code %d, want %d: %s", line, code, cli.ExitDatabase, errOut)
		}
	}
}
