package cli

import (
	"time"

	"github.com/tidewire/tidewire/internal/gateway"
)

// lanesFlags are the settings of the lanes endpoint. They override the file.
type lanesFlags struct {
	DummyMessageSize     *bytes   `placeholder:"SIZE" help:"Size of a message that the lanes endpoint pushes. Default: 1MB."`
	DummyMessageDuration *seconds `placeholder:"TIME" help:"Time between two such messages. Default: 500us."`
	Latency              string   `enum:"balanced,low" default:"balanced" help:"For the lanes endpoint. low: fewer bytes in flight, so that answers are faster, but the throughput of the flood is lower. balanced: both are good."`
}

// load reads the file, if one is given, and applies the flags to its settings.
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

// lowLatency is the chunk size and the credit of --latency low, in bytes: the
// smallest value with a useful throughput (docs/benchmarks/lanes.md).
const lowLatency = 16 << 10

func (f lanesFlags) lanes(cfg lanesConfig) gateway.LanesConfig {
	lanes := gateway.LanesConfig{DummySize: cfg.DummySize, DummyEvery: cfg.DummyEvery}
	if f.Latency == "low" {
		lanes.Chunk, lanes.Credit = lowLatency, lowLatency
	}
	return lanes
}
