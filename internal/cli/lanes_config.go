package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/tidewire/tidewire/gateway"
)

// lanesFile is where the lanes' settings are if nothing else is said.
const lanesFile = "config.toml"

// lanesConfig is what serve --only lanes and bench lanes agree on.
type lanesConfig struct {
	Host         string // where the client dials
	Port         int
	DummySize    int // bytes
	DummyEvery   time.Duration
	RequestEvery time.Duration
	Requests     int
}

func defaultLanes() lanesConfig {
	return lanesConfig{
		Host: "localhost", Port: 8080, DummySize: 1 << 20, DummyEvery: 500 * time.Microsecond,
		RequestEvery: 10 * time.Millisecond, Requests: 1000,
	}
}

// lanesTOML is the file. Pointers tell what it does not say from what is empty.
type lanesTOML struct {
	Server struct {
		Host          *string `toml:"host"`
		Port          any     `toml:"port"`
		DummySize     any     `toml:"dummy_message_size"`
		DummyDuration *string `toml:"dummy_message_duration"`
	} `toml:"server"`
	Client struct {
		RequestDuration *string `toml:"request_duration"`
		TotalRequest    *int    `toml:"total_request"`
	} `toml:"client"`
}

// loadLanesConfig reads a file, "" for config.toml here, if there is one. What
// it does not say is as defaultLanes has it.
func loadLanesConfig(path string) (lanesConfig, error) {
	explicit := path != ""
	if !explicit {
		path = lanesFile
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit {
		return defaultLanes(), nil
	}
	if err != nil {
		return lanesConfig{}, exit(ExitUsage, "--config: %w", err)
	}
	cfg, err := parseLanes(string(text))
	if err != nil {
		return lanesConfig{}, exit(ExitUsage, "%s: %w", path, err)
	}
	return cfg, nil
}

func parseLanes(text string) (lanesConfig, error) {
	var file lanesTOML
	decoder := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		return lanesConfig{}, tomlError(err)
	}
	cfg := defaultLanes()
	var errs []error
	set := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if file.Server.Host != nil {
		cfg.Host = *file.Server.Host
	}
	if file.Server.Port != nil {
		set("server.port", parsePort(file.Server.Port, &cfg.Port))
	}
	if file.Server.DummySize != nil {
		set("server.dummy_message_size", parseSize(file.Server.DummySize, &cfg.DummySize))
	}
	set("server.dummy_message_duration", parsePeriod(file.Server.DummyDuration, &cfg.DummyEvery))
	set("client.request_duration", parsePeriod(file.Client.RequestDuration, &cfg.RequestEvery))
	if n := file.Client.TotalRequest; n != nil {
		if cfg.Requests = *n; *n < 1 {
			set("client.total_request", fmt.Errorf("%d: want at least 1", *n))
		}
	}
	return cfg, errors.Join(errs...)
}

// tomlError says where the file is wrong.
func tomlError(err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		e := unknown.Errors[0]
		row, _ := e.Position()
		return fmt.Errorf("line %d: unknown key %v", row, e.Key())
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		row, column := bad.Position()
		return fmt.Errorf("line %d, column %d: %w", row, column, err)
	}
	return err
}

// parsePort takes a string or a number.
func parsePort(value any, port *int) error {
	n, err := strconv.Atoi(fmt.Sprint(value))
	if err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%v is no port: want 0 to 65535", value)
	}
	*port = n
	return nil
}

// parseSize takes "10KB", "1MB" or a number of bytes.
func parseSize(value any, size *int) error {
	n, err := parseBytes(fmt.Sprint(value))
	if err != nil {
		return err
	}
	*size = int(n)
	return checkDummySize(int(n))
}

func checkDummySize(n int) error {
	if n < 1 || n > gateway.MaxDummySize {
		return fmt.Errorf("%d bytes: want 1 to %d", n, gateway.MaxDummySize)
	}
	return nil
}

func parsePeriod(value *string, period *time.Duration) error {
	if value == nil {
		return nil
	}
	d, err := time.ParseDuration(*value)
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: want a duration above 0, such as 500us or 10ms", *value)
	}
	*period = d
	return nil
}
