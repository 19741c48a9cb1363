package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/bench/scenario"
)

// benchLanesCmd measures the latency of requests while the server floods the connection.
type benchLanesCmd struct {
	Config string `placeholder:"FILE" help:"Settings of the benchmark and of the server, in TOML. Default: none."`
	lanesFlags
	RequestDuration seconds  `placeholder:"TIME" help:"Time between two requests. Default: 10ms."`
	TotalRequest    int      `placeholder:"N" help:"Number of requests. Default: 1000."`
	Matrix          bool     `help:"Measure six cases: 1000 requests (or --total-request) every 1 ms and every 10 ms, each without a flood, and with 10 KB and 1 MB every 500 us."`
	Variants        []string `default:"plain,lanes,lanes+credit" help:"plain: one textbook connection. lanes: Tidewire, with any client. lanes+credit: Tidewire, with a client that reassembles chunks. two-connections: a textbook connection for the flood, and another one for requests."`
	Repeat          int      `help:"Number of rounds. Each round measures every variant; the result has the medians and the worst. Default: 1, and 5 with --matrix."`
	Dial            bool     `help:"Measure the running server at the host and port of --config. Default: the benchmark starts one."`
	tlsBenchFlags
	resultFlags
}

// Validate is called by kong.
func (c *benchLanesCmd) Validate() error {
	for _, v := range c.Variants {
		if !slices.Contains(scenario.LanesVariants, v) {
			return fmt.Errorf("--variants: %q is none of %s", v, strings.Join(scenario.LanesVariants, ", "))
		}
	}
	switch {
	case c.Repeat < 0:
		return fmt.Errorf("--repeat is %d: want at least 1", c.Repeat)
	case c.TotalRequest < 0:
		return fmt.Errorf("--total-request is %d: want at least 1", c.TotalRequest)
	case c.Matrix && c.Dial:
		return fmt.Errorf("--matrix starts its own servers: it cannot be combined with --dial")
	case c.TLS && c.Dial:
		return fmt.Errorf("--tls is for the server that the benchmark starts: it cannot be combined with --dial")
	case c.Dial && slices.Contains(c.Variants, "two-connections"):
		return fmt.Errorf("--variants two-connections needs a second server, which pushes nothing: it cannot be combined with --dial")
	}
	return nil
}

// Run is called by kong.
func (c *benchLanesCmd) Run(p *process) error {
	if err := c.contradiction(p.changed); err != nil {
		return err
	}
	file, err := c.load(c.Config)
	if err != nil {
		return err
	}
	if c.RequestDuration != 0 {
		file.RequestEvery = time.Duration(c.RequestDuration)
	}
	if c.TotalRequest != 0 {
		file.Requests = c.TotalRequest
	}
	with, err := c.certify()
	if err != nil {
		return err
	}
	defer with.remove()
	view := c.watch(p, 0)
	defer view.Stop()
	cfg := scenario.LanesConfig{
		TLS:      with.config,
		Variants: c.Variants, Repeat: max(c.Repeat, 1), Progress: view.Progress, Control: view.Control(),
		Cells: []scenario.LanesCell{{RequestEvery: file.RequestEvery, Requests: file.Requests, DummySize: file.DummySize, DummyEvery: file.DummyEvery}},
	}
	if c.Matrix {
		cfg.Cells = scenario.LanesMatrix()
		for i := range cfg.Cells {
			cfg.Cells[i].Requests = cmp.Or(c.TotalRequest, cfg.Cells[i].Requests)
		}
		if c.Repeat == 0 {
			cfg.Repeat = 5
		}
	}
	if c.Dial {
		cfg.URL = "ws://" + net.JoinHostPort(file.Host, strconv.Itoa(file.Port)) + "/ws/lanes"
	} else if cfg.Start, err = c.starter(p, with); err != nil {
		return err
	}
	result := bench.NewResult("lanes", map[string]any{
		"variants": c.Variants, "matrix": c.Matrix, "repeat": cfg.Repeat, "latency": c.Latency, "dial": c.Dial, "tls": c.TLS,
		"dummy_message_size": file.DummySize, "dummy_message_duration": file.DummyEvery.String(),
		"request_duration": file.RequestEvery.String(), "total_request": file.Requests,
	})
	result.Recording.Observe(view.Observe)
	if err := scenario.Lanes(p.ctx, cfg, result); err != nil {
		return err
	}
	view.Stop()
	return c.finish(p, result)
}

// starter returns a function that runs a server with the settings of a cell: the size and the rate
// of its pushes.
func (c *benchLanesCmd) starter(p *process, with *certified) (func(context.Context, scenario.LanesCell) (*scenario.ServerProcess, error), error) {
	program, err := p.self()
	return func(ctx context.Context, cell scenario.LanesCell) (*scenario.ServerProcess, error) {
		args := append([]string{"serve", "--only", "lanes", "--port", "0", "--latency", c.Latency,
			"--dummy-message-size", strconv.Itoa(cell.DummySize), "--dummy-message-duration", cell.DummyEvery.String()}, with.args...)
		return scenario.StartServer(ctx, nil, nil, program, args...)
	}, err
}
