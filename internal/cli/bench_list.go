package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// scenarioInfo describes a scenario in the output of bench list.
type scenarioInfo struct {
	name    string
	args    []string // passed by bench all
	answers string
	takes   string // approximate time with defaults on two cores
	// quick lists the flags that --quick stands for: a small scale and one trial.
	quick []string
}

// scenarios lists the benchmarks in the order in which bench all runs them.
var scenarios = []scenarioInfo{
	{"ingest", nil, "which way to write WebSocket messages to PostgreSQL is fastest", "3 min",
		[]string{"--messages=20000", "--naive-messages=4000", "--repeat=1"}},
	{"queue", []string{"--strategy=lease,skip-locked,skip-locked-batch"}, "throughput and latency of a queue on PostgreSQL", "2 min a strategy",
		[]string{"--duration=4s", "--warm-up=1s", "--report=2s"}},
	{"pubsub", []string{"--strategy=log,counter-rows", "--in-flight=16"}, "throughput and latency when every group reads all messages", "2 min a strategy",
		[]string{"--duration=4s", "--warm-up=1s", "--report=2s"}},
	{"events", nil, "how fast an event store appends under conditions, and reads", "8 min",
		[]string{"--datasets=tiny", "--batch=1", "--duration=300ms", "--warm-up=100ms", "--repeat=1"}},
	{"chat", []string{"all"}, "how many members a chat room can have, compared with other servers", "6 min a target",
		[]string{"--time-scale=0.05", "--client-scale=0.2", "--repeat=1"}},
	{"lanes", nil, "latency of requests on a connection that is flooded", "30 s",
		[]string{"--total-request=200", "--repeat=1"}},
	{"echo", nil, "cost of a round trip", "10 s", []string{"--clients=20", "--messages=100000", "--repeat=1"}},
	{"failover", nil, "which data is lost when PostgreSQL fails over, and how long clients wait", "5 min",
		[]string{"--replication=quorum", "--promotions=2", "--fault=cut-off,freeze"}},
	{"cluster", nil, "which promises several servers keep when nodes and networks fail", "5 min",
		[]string{"--faults=2", "--fault=kill,freeze", "--longest=2s"}},
	{"idle", nil, "memory of an idle connection", "15 s", []string{"--connections=1000"}},
}

// benchListCmd lists the scenarios.
type benchListCmd struct{}

// Run is called by kong.
func (benchListCmd) Run(p *process) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{"tidewire bench", "answers", "takes"})
	for _, s := range scenarios {
		t.AppendRow(table.Row{s.name, s.answers, s.takes})
	}
	_, err := fmt.Fprintf(p.Out, "%s\ntidewire bench all --quick runs a small version of all of them and writes one report.\n", t.Render())
	return err
}

// quickened replaces --quick after a scenario by the flags that it stands for,
// except those that are given explicitly.
func quickened(args []string) []string {
	at := slices.Index(args, "--quick")
	if at < 0 || len(args) < 2 || args[0] != "bench" || args[1] == "all" {
		return args
	}
	i := slices.IndexFunc(scenarios, func(s scenarioInfo) bool { return s.name == args[1] })
	if i < 0 {
		return args
	}
	out := slices.Delete(slices.Clone(args), at, at+1)
	for _, flag := range scenarios[i].quick {
		name, _, _ := strings.Cut(flag, "=")
		if !slices.ContainsFunc(out, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") }) {
			out = append(out, flag)
		}
	}
	return out
}
