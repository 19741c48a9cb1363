package cli_test

import (
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/cli"
)

// TestBench_Refused: flags that are wrong or contradict each other are refused before anything starts, with a sentence that names the flag to change.
func TestBench_Refused(t *testing.T) {
	notShort(t)
	t.Parallel()
	taken := t.TempDir()
	refused(t, []refusal{
		{"bench queue --consumer-groups 0", cli.ExitUsage, "bench pubsub"},
		{"bench queue --partitions 4", cli.ExitUsage, "--partitions"},
		{"bench queue --ceiling-start 10", cli.ExitUsage, "--find-ceiling"},
		{"bench queue --find-ceiling --ceiling-start 0", cli.ExitUsage, "more than 0"},
		{"bench queue --find-ceiling --throttle-writes 10", cli.ExitUsage, "exclude each other"},
		{"bench queue --find-ceiling --price-per-year 10", cli.ExitUsage, "--target-cpu"},
		{"bench queue --streams 20 --readers 3", cli.ExitUsage, "--readers"},
		{"bench queue --via server --write-batch 1001", cli.ExitUsage, "--write-batch"},
		{"bench queue --linger 1ms --strategy skip-locked", cli.ExitUsage, "--linger"},
		{"bench queue --linger 1ms --via server", cli.ExitUsage, "--linger"},
		{"bench queue --tune-table-vacuum", cli.ExitUsage, "--strategy"},
		{"bench queue --price-per-year 1 --price-per-hour 1", cli.ExitUsage, "give one"},
		{"bench queue --iops 3000", cli.ExitUsage, "--price-per-iops-month"},
		{"bench queue --retention 24h", cli.ExitUsage, "--price-per-gb-month"},
		{"bench queue --warm-up=-1s", cli.ExitUsage, "--warm-up"},
		{"bench queue --host x --data-dir /tmp/x", cli.ExitUsage, "--data-dir"},
		{"bench queue --database-url postgres://x --postgres system", cli.ExitUsage, "--postgres"},
		{"bench pubsub --consumer-groups 0 --readers 4", cli.ExitUsage, "--readers"},
		{"bench pubsub --consumer-groups 0 --read-batch 4", cli.ExitUsage, "--read-batch"},
		{"bench pubsub --consumer-groups 0 --threshold end_to_end_p99<25ms", cli.ExitUsage, "--threshold"},
		{"bench queue --out /dev/null/result.json", cli.ExitUsage, "--out"},
		{"bench queue --out /", cli.ExitUsage, "name a file"},
		{"bench pubsub --strategy log --partitions 4", cli.ExitUsage, "counter-rows"},
		{"bench pubsub --streams 20 --partitions 4", cli.ExitUsage, "exclude each other"},
		{"bench pubsub --linger 1ms --strategy counter-rows", cli.ExitUsage, "--linger"},
		{"bench events --ops append --past-events 7", cli.ExitUsage, "appendif"},
		{"bench events --ops append --conflict-events 7", cli.ExitUsage, "appendif-conflict"},
		{"bench events --ops projectionlimits --concurrency 7", cli.ExitUsage, "--concurrency"},
		{"bench events --ops projectionlimits --find-ceiling", cli.ExitUsage, "--find-ceiling"},
		{"bench events --find-ceiling --compare-database postgres://x", cli.ExitUsage, "exclude each other"},
		{"bench ingest --closed-loop --rate 5", cli.ExitUsage, "exclude each other"},
		{"bench ingest --closed-loop --ack", cli.ExitUsage, "--ack"},
		{"bench ingest --rate=-5", cli.ExitUsage, "--rate"},
		{"bench ingest --url ws://x --modes auto", cli.ExitUsage, "--modes"},
		{"bench ingest --url ws://x --workers 2", cli.ExitUsage, "--workers"},
		{"bench ingest --url ws://x --server-log", cli.ExitUsage, "--server-log"},
		{"bench ingest --url ws://x --data-dir /tmp/x", cli.ExitUsage, "--data-dir"},
		{"bench ingest --modes auto --workers 2", cli.ExitUsage, "--workers"},
		{"bench ingest --modes naive --batch 2", cli.ExitUsage, "--batch"},
		{"bench lanes --matrix --request-duration 1ms", cli.ExitUsage, "--request-duration"},
		{"bench lanes --matrix --dummy-message-size 1MB", cli.ExitUsage, "--dummy-message-size"},
		{"bench lanes --matrix --dial", cli.ExitUsage, "--dial"},
		{"bench lanes --dial --latency low", cli.ExitUsage, "--latency"},
		{"bench chat load --ceiling-start 10", cli.ExitUsage, "--find-ceiling"},
		{"bench chat load --find-ceiling --clients 50", cli.ExitUsage, "--clients"},
		{"bench chat load --clients 1", cli.ExitUsage, "--clients"},
		{"bench chat load --mode soak120", cli.ExitUsage, "--hold"},
		{"bench chat steady --find-ceiling", cli.ExitUsage, "load"},
		{"bench chat steady --clients 50", cli.ExitUsage, "--client-scale"},
		{"bench chat churn --hold 5s", cli.ExitUsage, "bench chat load"},
		{"bench queue --threshold p98<5", cli.ExitUsage, "bench queue does not measure p98"},
		{"bench idle --threshold p99<1s", cli.ExitUsage, "bench idle does not measure p99"},
		{"bench queue --threshold p98<5ms", cli.ExitUsage, "p98 is not a time"},
		{"bench ingest --threshold speed>1", cli.ExitUsage, "bench ingest does not measure speed"},
		{"bench ingest --threshold p99<5ms", cli.ExitUsage, "--closed-loop"},
		{"bench events --datasets vast", cli.ExitUsage, "none of"},
		{"bench events --ops delete", cli.ExitUsage, "none of"},
		{"bench events --concurrency 0", cli.ExitUsage, "--concurrency"},
		{"bench events --batch 5000", cli.ExitUsage, "--batch"},
		{"bench events --streams 2 --ops query", cli.ExitUsage, "append and appendif"},
		{"bench events --streams 20 --concurrency 10", cli.ExitUsage, "--concurrency is 10"},
		{"bench queue --strategy fast", cli.ExitUsage, "none of"},
		{"bench queue --mode log", cli.ExitUsage, "--mode"},
		{"bench queue --writers 0", cli.ExitUsage, "--writers"},
		{"bench queue --consumer-groups -1", cli.ExitUsage, "--consumer-groups"},
		{"bench queue --payload 5", cli.ExitUsage, "--payload"},
		{"bench queue --streams 9", cli.ExitUsage, "one for each"},
		{"bench queue --streams 100 --strategy skip-locked", cli.ExitUsage, "has no streams"},
		{"bench queue --duration 0", cli.ExitUsage, "--duration"},
		{"bench queue --throttle-writes -1", cli.ExitUsage, "--throttle-writes"},
		{"bench queue --port 5432", cli.ExitUsage, "go with --host"},
		{"bench queue --via server --strategy skip-locked", cli.ExitUsage, "a server does not support"},
		{"bench queue --host x --database-url postgres://x", cli.ExitUsage, "exclude"},
		{"bench cluster --faults 0", cli.ExitUsage, "--faults is 0"},
		{"bench cluster --fault flood", cli.ExitUsage, "flood"},
		{"bench cluster --pace 0s", cli.ExitUsage, "--pace is 0s"},
		{"bench cluster --longest 2m", cli.ExitUsage, "--longest is 2m"},
		{"bench cluster --nodes 1", cli.ExitUsage, "--nodes"},
		{"bench cluster --nodes 2,3", cli.ExitUsage, "--nodes"},
		{"bench cluster --steady --repeat 0", cli.ExitUsage, "--repeat"},
		{"bench failover --promotions 0", cli.ExitUsage, "--promotions is 0"},
		{"bench failover --fault flood", cli.ExitUsage, "flood"},
		{"bench failover --pace 0s", cli.ExitUsage, "--pace is 0s"},
		{"bench failover --replication none", cli.ExitUsage, "replication"},
		{"bench chat storm", cli.ExitUsage, "tidewire: "},
		{"bench chat ", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --time-scale 0", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --time-scale 2", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --repeat 0", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --client-scale 0", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --client-scale 1.1", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --mode soak1", cli.ExitUsage, "tidewire: "},
		{"bench chat load --clients 0", cli.ExitUsage, "tidewire: "},
		{"bench chat load --clients 70000", cli.ExitUsage, "tidewire: "},
		{"bench chat load --rate 0", cli.ExitUsage, "tidewire: "},
		{"bench chat load --payload 20", cli.ExitUsage, "tidewire: "},
		{"bench chat load --hold 0", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --target nobody", cli.ExitUsage, "tidewire: "},
		{"bench chat steady --target x=http://localhost", cli.ExitUsage, "tidewire: "},
		{"bench lanes --variants fast", cli.ExitUsage, "tidewire: "},
		{"bench lanes --repeat -1", cli.ExitUsage, "tidewire: "},
		{"bench lanes --total-request -5", cli.ExitUsage, "tidewire: "},
		{"bench lanes --config missing.toml", cli.ExitUsage, "tidewire: "},
		{"bench lanes --dummy-message-size 65MB", cli.ExitUsage, "tidewire: "},
		{"bench lanes --dummy-message-size -1", cli.ExitUsage, "tidewire: "},
		{"bench lanes --latency none", cli.ExitUsage, "tidewire: "},
		{"bench lanes --dial --variants two-connections", cli.ExitUsage, "tidewire: "},
		{"bench lanes --request-duration -1ms", cli.ExitUsage, "tidewire: "},
		{"bench cluster --data-dir " + taken, cli.ExitDataDir, "exists already"},
		{"bench failover --data-dir " + taken, cli.ExitDataDir, "exists already"},
		{"bench chat load --target go-gorilla --tls", cli.ExitUsage, "wss://"},
		{"bench all --only storm", cli.ExitUsage, "storm"},
	})
	database := func(name string) string { return map[string]string{"DATABASE_URL": "postgres://x"}[name] }
	if code, _, errOut := run(t, database, "bench", "queue", "--data-dir", "/tmp/x"); code != cli.ExitUsage || !strings.Contains(errOut, "DATABASE_URL") {
		t.Errorf("with DATABASE_URL: exit code %d: %s", code, errOut)
	}
}

// TestBench_Accepted: the command lines of the published benchmark of queues on PostgreSQL are accepted unchanged, and flags at their defaults do not
// count as contradictions, because tidewire bench run passes all flags. They fail because their database does not exist.
func TestBench_Accepted(t *testing.T) {
	t.Parallel()
	const published, nowhere = "bench queue --host=127.0.0.1 --port=1 --db=benchmark --user=postgres --password=postgres ", " --database-url postgres://127.0.0.1:1/x"
	for _, line := range []string{
		published + "--writers=50 --readers=50 --duration=120s --payload=1024 --report=5s --throttle_writes 4200",
		published + "--report=5s --write-batch 100 --read-batch 200 --writers=10 --readers=4 --consumer-groups 5 --mode=pubsub --partitions 4 --duration=120s --throttle_writes=5000",
		"bench queue --consumer-groups=5 --partitions=1 --retention=168h0m0s --ceiling-start=1000 --warm-up=2s --readers=15" + nowhere,
		"bench pubsub --consumer-groups=0 --readers=15" + nowhere,
		"bench events --ops=append --past-events=100 --conflict-events=1 --ceiling-start=1000" + nowhere,
		"bench ingest --modes=auto --workers=4" + nowhere,
	} {
		if code, _, errOut := run(t, nil, strings.Fields(line)...); code != cli.ExitDatabase {
			t.Errorf("%s: exit code %d, want %d: %s", line, code, cli.ExitDatabase, errOut)
		}
	}
}
