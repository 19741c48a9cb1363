package cli

import (
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

// lanesFlags are the settings of the lanes endpoint; they win over the file.
type lanesFlags struct {
	DummyMessageSize     *bytes   `placeholder:"SIZE" help:"Size of a message that the lanes endpoint pushes. Default: 1MB."`
	DummyMessageDuration *seconds `placeholder:"TIME" help:"Time between two such messages. Default: 500us."`
	Latency              string   `enum:"balanced,low" default:"balanced" help:"For the lanes endpoint: balanced, or low, which has fewer bytes in flight, so that answers are faster and the flood is smaller."`
}

// load applies the flags that were given to what the file says, if there is one.
func (f lanesFlags) load(file string) (cfg lanesConfig, err error) {
	if cfg = defaultLanes(); file != "" {
		if cfg, err = loadLanesConfig(file); err != nil {
			return cfg, err
		}
	}
	if f.DummyMessageSize != nil {
		cfg.DummySize = int(*f.DummyMessageSize)
	}
	if f.DummyMessageDuration != nil {
		cfg.DummyEvery = time.Duration(*f.DummyMessageDuration)
	}
	if err := checkDummySize(cfg.DummySize); err != nil {
		return cfg, exit(ExitUsage, "--dummy-message-size: %w", err)
	}
	if cfg.DummyEvery <= 0 {
		return cfg, exit(ExitUsage, "--dummy-message-duration is %v: want more than 0; 1h is as good as no dummies", cfg.DummyEvery)
	}
	return cfg, nil
}

// lowLatency is the chunk and the credit of --latency low, in bytes: the
// smallest at which the throughput is still of use (docs/benchmarks/lanes.md).
const lowLatency = 16 << 10

func (f lanesFlags) lanes(cfg lanesConfig) gateway.LanesConfig {
	lanes := gateway.LanesConfig{DummySize: cfg.DummySize, DummyEvery: cfg.DummyEvery}
	if f.Latency == "low" {
		lanes.Chunk, lanes.Credit = lowLatency, lowLatency
	}
	return lanes
}
