package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidewire/tidewire/bench"
	"github.com/tidewire/tidewire/bench/scenario"
)

// benchChatCmd runs the chat scenarios.
type benchChatCmd struct {
	Scenario    string   `arg:"" enum:"steady,burst,churn,saturation,load,all" help:"steady: 100 clients say one thing a second. burst: 1000 come at once. churn: 200 come and go. saturation: 200, 500 and 1000 clients x 5 messages/s. load: as many as --clients and --rate say. all: the first four."`
	Target      []string `default:"tidewire" help:"Servers: tidewire, or NAME=ws://… of one that runs."`
	Mode        string   `enum:"quick,soak120,soak300" default:"quick" help:"quick: the scenario's own length. soak120, soak300: that many seconds, with a verdict on memory, decay and errors."`
	TimeScale   float64  `default:"1" help:"Shortens every duration of a scenario, for a try: 0.1 takes a tenth."`
	ClientScale float64  `default:"1" help:"Of the number of clients of a scenario, for a try."`
	Repeat      int      `default:"1" help:"Rounds; targets are interleaved, and medians reported."`

	Clients int     `default:"1000" help:"load: connections, all in one room."`
	Rate    float64 `default:"5" help:"load: chats a second of each."`
	Payload int     `default:"128" help:"load: bytes of a chat."`
	Hold    seconds `default:"20s" help:"load: for how long."`
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
	case c.Clients < 1 || c.Clients > 1<<16:
		return fmt.Errorf("--clients is %d: want 1 to 65536", c.Clients)
	case c.Rate <= 0:
		return fmt.Errorf("--rate is %g: want more than 0", c.Rate)
	case c.Payload < bench.MinChat || c.Payload > bench.MaxChat:
		return fmt.Errorf("--payload is %d: want %d to %d bytes", c.Payload, bench.MinChat, bench.MaxChat)
	case c.Hold <= 0:
		return errors.New("--hold: want more than 0")
	case c.Scenario == "load" && c.Mode != "quick":
		return errors.New("--mode: load lasts as long as --hold says")
	}
	return nil
}

// Run is called by kong.
func (c *benchChatCmd) Run(p *process) error {
	scenarios := []string{c.Scenario}
	if c.Scenario == "all" {
		scenarios = scenario.Chats
	}
	dir, err := newTargetDir()
	if err != nil {
		return err
	}
	defer dir.remove()
	targets, err := dir.targets(p, "chat", c.Target)
	if err != nil {
		return err
	}
	var invalid error
	for _, name := range scenarios {
		if err := c.runOne(p, name, targets, len(scenarios) > 1); isInvalid(err) {
			invalid = err // the others are of interest all the same
		} else if err != nil {
			return err
		}
	}
	return invalid
}

func (c *benchChatCmd) runOne(p *process, name string, targets []scenario.Target, several bool) error {
	params := map[string]any{"target": c.Target, "mode": c.Mode, "time_scale": c.TimeScale, "client_scale": c.ClientScale, "repeat": c.Repeat}
	cfg := scenario.ChatConfig{
		Targets: targets, Scenario: name, Soak: c.soak(), Scale: c.TimeScale, Share: c.ClientScale, Repeat: c.Repeat, Progress: c.progress(p),
	}
	if name == "load" {
		cfg.Custom = &scenario.ChatLoad{Clients: c.Clients, Rate: c.Rate, Payload: c.Payload, Hold: time.Duration(c.Hold)}
		params = map[string]any{"target": c.Target, "repeat": c.Repeat, "clients": c.Clients, "rate": c.Rate, "payload": c.Payload, "hold": c.Hold.String()}
	}
	result := bench.NewResult("chat-"+name, params)
	if err := scenario.Chat(p.ctx, cfg, result); err != nil {
		return err
	}
	flags := c.resultFlags
	if several && flags.Out != "" {
		ext := filepath.Ext(flags.Out)
		flags.Out = strings.TrimSuffix(flags.Out, ext) + "-" + name + ext
	}
	if name != "load" && (c.TimeScale != 1 || c.ClientScale != 1) {
		fmt.Fprintf(p.Out, "chat-%s with every duration times %g, and the clients times %g: a try, not a measurement\n", name, c.TimeScale, c.ClientScale)
	}
	return flags.finish(p, result)
}

func (c *benchChatCmd) soak() time.Duration {
	i := slices.Index([]string{"quick", "soak120", "soak300"}, c.Mode)
	return []time.Duration{0, 2 * time.Minute, 5 * time.Minute}[i]
}
