package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// scenarioInfo is what people choose a scenario by.
type scenarioInfo struct {
	name    string
	args    []string // that bench all gives it
	answers string
	takes   string // about, with defaults, on two cores
	// quick are the flags of --quick: a small scale, and one trial.
	quick []string
}

// scenarios are in the order in which bench all runs them.
var scenarios = []scenarioInfo{
	{"ingest", nil, "which way of writing WebSocket messages to PostgreSQL pays", "3 min",
		[]string{"--messages=20000", "--naive-messages=4000", "--repeat=1"}},
	{"queue", []string{"--strategy=lease,skip-locked,skip-locked-batch"}, "how much a queue on PostgreSQL carries, and at what latency", "2 min a strategy",
		[]string{"--duration=4s", "--warm-up=1s", "--report=2s"}},
	{"pubsub", []string{"--strategy=log,counter-rows", "--in-flight=16"}, "the same where every group reads everything", "2 min a strategy",
		[]string{"--duration=4s", "--warm-up=1s", "--report=2s"}},
	{"events", nil, "how fast an event store appends under conditions, and reads", "8 min",
		[]string{"--datasets=tiny", "--batch=1", "--duration=300ms", "--warm-up=100ms", "--repeat=1"}},
	{"chat", []string{"all"}, "how many members a room carries, and what other servers do", "6 min a target",
		[]string{"--time-scale=0.05", "--client-scale=0.2", "--repeat=1"}},
	{"lanes", nil, "what a flood does to requests on the same connection", "30 s",
		[]string{"--total-request=200", "--repeat=1"}},
	{"echo", nil, "what a round trip costs", "10 s", []string{"--clients=20", "--messages=100000", "--repeat=1"}},
	{"failover", nil, "what is lost when PostgreSQL fails over, and how long nothing goes on", "5 min",
		[]string{"--replication=quorum", "--promotions=2", "--fault=cut-off,freeze"}},
	{"idle", nil, "what a connection costs that does nothing", "15 s", []string{"--connections=1000"}},
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
	_, err := fmt.Fprintf(p.Out, "%s\ntidewire bench all --quick runs them all, small, and makes one report of it.\n", t.Render())
	return err
}

// quickened replaces --quick after a scenario by the flags that it stands for,
// but for those that are given.
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
