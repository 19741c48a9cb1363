package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/report"
	"github.com/tidewire/tidewire/internal/bench/scenario"
)

// benchChatCmd runs the chat scenarios.
type benchChatCmd struct {
	Scenario    []string `arg:"" enum:"steady,burst,churn,saturation,load,all" help:"One or more. steady: 100 clients say one thing a second. burst: 1000 come at once. churn: 200 come and go. saturation: 200, 500 and 1000 clients, 5 messages/s each. load: the number of --clients and the --rate that you give. all: the first four. After steady, burst and saturation, the profiles are compared."`
	Target      []string `placeholder:"NAME,…" help:"Servers to measure: tidewire; go-gorilla, go-fiber, rust-tungstenite, rust-axum or zig-std, which are built if they are missing (in a checkout); or NAME=ws://… for a server that is running, or NAME='ws://…|ws://…' for several of a cluster, among which the clients are divided. Default: tidewire, or those of --profile."`
	Profile     string   `enum:",a,b,all" default:"" placeholder:"a|b|all" help:"Compare the servers of a profile. a: servers built on a framework. b: minimal servers. all: both. Tidewire is in each profile. --target chooses other servers to measure."`
	Mode        string   `enum:"quick,soak120,soak300" default:"quick" help:"quick: the scenario's own length. soak120, soak300: 120 or 300 seconds, with a verdict on memory, decay and errors."`
	TimeScale   float64  `default:"1" help:"Multiply every duration of a scenario by this number: 0.1 takes a tenth of the time."`
	ClientScale float64  `default:"1" help:"Multiply the number of clients of a scenario by this number."`
	Repeat      int      `default:"1" help:"Number of rounds. Each round measures every target; the result has the medians."`

	Clients  int     `default:"1000" help:"load: number of clients, all in one room. With --find-ceiling there are as many as each rate needs."`
	Rate     float64 `default:"5" help:"load: chats a second that each client sends."`
	Payload  int     `default:"128" help:"load: size of a chat in bytes."`
	Hold     seconds `default:"20s" help:"load: how long to measure."`
	Compress bool    `help:"The clients offer compression and ask for batches of chats, and Tidewire is started with --compress. Other servers have to accept the offer."`
	ceilingFlags
	tlsBenchFlags
	resultFlags
}

// Validate is called by kong.
func (c *benchChatCmd) Validate() error {
	switch {
	case c.TimeScale <= 0 || c.TimeScale > 1:
		return fmt.Errorf("--time-scale is %g: want more than 0, and at most 1", c.TimeScale)
	case c.ClientScale <= 0 || c.ClientScale > 1:
		return fmt.Errorf("--client-scale is %g: want more than 0, and at most 1", c.ClientScale)
	case c.Repeat < 1:
		return fmt.Errorf("--repeat is %d: want at least 1", c.Repeat)
	case c.Clients < 2 || c.Clients > 1<<16:
		return fmt.Errorf("--clients is %d: want 2 to 65536, since each chat goes to the others", c.Clients)
	case c.Rate <= 0:
		return fmt.Errorf("--rate is %g: want more than 0", c.Rate)
	case c.Payload < bench.MinChat || c.Payload > bench.MaxChat:
		return fmt.Errorf("--payload is %d: want %d to %d bytes", c.Payload, bench.MinChat, bench.MaxChat)
	case c.Hold <= 0:
		return errors.New("--hold: want more than 0")
	case c.FindCeiling && !slices.Equal(c.Scenario, []string{"load"}):
		return errors.New("--find-ceiling works only with load: the other scenarios have fixed rates")
	case slices.Contains(c.Scenario, "load") && c.Mode != "quick":
		return errors.New("--mode does not work with load: set the time with --hold")
	}
	return nil
}

// Run is called by kong.
func (c *benchChatCmd) Run(p *process) error {
	if err := c.contradiction(p.changed); err != nil {
		return err
	}
	if len(c.Target) == 0 {
		c.Target = c.defaultTargets()
	}
	with, err := c.certify()
	if err != nil {
		return err
	}
	defer with.remove()
	if c.Compress {
		with.args = append(with.args, "--compress")
	}
	targets, err := targets(p, "chat", c.Target, c.resultFlags, with)
	if err != nil {
		return err
	}
	scenarios := c.scenarios()
	var invalid error
	done := make(map[string]*bench.Result)
	for _, name := range scenarios {
		result, err := c.runOne(p, name, targets, len(scenarios) > 1)
		if err != nil && !isInvalid(err) {
			return err
		}
		invalid = cmp.Or(invalid, err) // the other scenarios still run
		done[name] = result
	}
	if done["steady"] != nil && done["burst"] != nil && done["saturation"] != nil {
		invalid = cmp.Or(invalid, c.compare(p, done["steady"], done["burst"], done["saturation"]))
	}
	return invalid
}

// defaultTargets returns the servers of the profile.
func (c *benchChatCmd) defaultTargets() []string {
	if c.Profile == "" {
		return []string{"tidewire"}
	}
	return targetNames("chat", profiles[c.Profile])
}

// profiles are the values of --profile.
var profiles = map[string]string{"a": framework, "b": minimal}

// scenarios returns the requested scenarios, each once.
func (c *benchChatCmd) scenarios() (names []string) {
	for _, name := range c.Scenario {
		some := []string{name}
		if name == "all" {
			some = scenario.Chats
		}
		for _, name := range some {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// compare writes the comparison of the profiles as a separate result. Its rows
// are computed from the rows of the other results.
func (c *benchChatCmd) compare(p *process, steady, burst, saturation *bench.Result) error {
	result := report.CompareProfiles(profiles[c.Profile], steady, burst, saturation)
	if result == nil { // only Tidewire, or servers without a known profile
		return nil
	}
	c.announce(p, "profiles")
	return resultFlags{Out: c.fileOf("profiles"), Quiet: c.Quiet}.finish(p, result) // bounds apply to the scenarios only
}

func (c *benchChatCmd) runOne(p *process, name string, targets []scenario.Target, several bool) (*bench.Result, error) {
	shown := *p // the next scenario gets its own view
	view := c.watch(&shown, 0)
	defer view.Stop()
	params := map[string]any{"target": c.Target, "profile": c.Profile, "mode": c.Mode, "time_scale": c.TimeScale, "client_scale": c.ClientScale, "repeat": c.Repeat}
	cfg := scenario.ChatConfig{
		Targets: targets, Scenario: name, Soak: c.soak(), Scale: c.TimeScale, Share: c.ClientScale, Compress: c.Compress, Repeat: c.Repeat, Progress: view.Progress, Control: view.Control(),
	}
	if name == "load" {
		cfg.Custom = &scenario.ChatLoad{Clients: c.Clients, Rate: c.Rate, Payload: c.Payload, Hold: time.Duration(c.Hold)}
		cfg.Ceiling = c.ceiling(view.Progress)
		params = map[string]any{
			"target": c.Target, "profile": c.Profile, "time_scale": c.TimeScale, "client_scale": c.ClientScale, "repeat": c.Repeat, "clients": c.Clients, "rate": c.Rate, "payload": c.Payload,
			"hold": c.Hold.String(), "find_ceiling": c.FindCeiling,
		}
	}
	params["tls"], params["compress"] = c.TLS, c.Compress
	result := bench.NewResult("chat-"+name, params)
	result.Recording.Observe(view.Observe)
	if err := scenario.Chat(p.ctx, cfg, result); err != nil {
		return nil, err
	}
	view.Stop()
	flags := c.resultFlags
	if several {
		flags.Out = c.fileOf(name)
	}
	c.announce(p, name)
	return result, flags.finish(p, result)
}

// fileOf returns the file for one of several results: the path of --out with
// the name added, or "" without --out.
func (c *benchChatCmd) fileOf(name string) string {
	if c.Out == "" {
		return ""
	}
	ext := filepath.Ext(c.Out)
	return strings.TrimSuffix(c.Out, ext) + "-" + name + ext
}

// announce prints, before the table of a scaled-down run, that it is a try.
func (c *benchChatCmd) announce(p *process, name string) {
	if c.TimeScale != 1 || c.ClientScale != 1 {
		fmt.Fprintf(p.Out, "chat-%s with every duration times %g, and the clients times %g: a try, not a measurement\n", name, c.TimeScale, c.ClientScale)
	}
}

func (c *benchChatCmd) soak() time.Duration {
	i := slices.Index([]string{"quick", "soak120", "soak300"}, c.Mode)
	return []time.Duration{0, 2 * time.Minute, 5 * time.Minute}[i]
}
