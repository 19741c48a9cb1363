package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/tidewire/tidewire/internal/gateway"
)

// lanesConfig is the configuration of the lanes benchmark, which serve --only lanes and bench lanes
// share.
type lanesConfig struct {
	Host         string // the host that the client dials
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

// lanesTOML is the decoded file. Missing settings are nil. The parse functions
// check the others and name the key and the value in errors.
type lanesTOML struct {
	Server struct {
		Host          any `toml:"host"`
		Port          any `toml:"port"`
		DummySize     any `toml:"dummy_message_size"`
		DummyDuration any `toml:"dummy_message_duration"`
	} `toml:"server"`
	Client struct {
		RequestDuration any `toml:"request_duration"`
		TotalRequest    any `toml:"total_request"`
	} `toml:"client"`
}

// loadLanesConfig reads a file. Missing settings have the values of defaultLanes.
func loadLanesConfig(path string) (lanesConfig, error) {
	text, err := os.ReadFile(path)
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
	var wrong []string
	set(&wrong, "server.host", file.Server.Host, parseHost, &cfg.Host)
	set(&wrong, "server.port", file.Server.Port, parsePort, &cfg.Port)
	set(&wrong, "server.dummy_message_size", file.Server.DummySize, parseSize, &cfg.DummySize)
	set(&wrong, "server.dummy_message_duration", file.Server.DummyDuration, parsePeriod, &cfg.DummyEvery)
	set(&wrong, "client.request_duration", file.Client.RequestDuration, parsePeriod, &cfg.RequestEvery)
	set(&wrong, "client.total_request", file.Client.TotalRequest, parseCount, &cfg.Requests)
	if len(wrong) > 0 {
		return cfg, errors.New(strings.Join(wrong, "; "))
	}
	return cfg, nil
}

// set parses the value of a key in the file. If that fails, it adds the reason to wrong.
func set[T any](wrong *[]string, key string, value any, parse func(any, *T) error, to *T) {
	if value == nil {
		return
	}
	if err := parse(value, to); err != nil {
		*wrong = append(*wrong, fmt.Sprintf("%s: %v", key, err))
	}
}

// shown formats a value roughly as it is written in the file.
func shown(value any) string {
	if text, ok := value.(string); ok {
		return strconv.Quote(text)
	}
	return fmt.Sprint(value)
}

// tomlError says in one line where the file is wrong.
func tomlError(err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		e := unknown.Errors[0]
		row, _ := e.Position()
		return fmt.Errorf("line %d: unknown key %s", row, strings.Join(e.Key(), "."))
	}
	var bad *toml.DecodeError
	if !errors.As(err, &bad) {
		return err
	}
	row, column := bad.Position()
	if why, _, mismatch := strings.Cut(bad.Error(), " into "); mismatch { // the rest names Go types
		return fmt.Errorf("line %d: %s: %s: want a table", row, strings.Join(bad.Key(), "."), strings.TrimPrefix(why, "toml: "))
	}
	return fmt.Errorf("line %d, column %d: %w", row, column, err)
}

func parseHost(value any, host *string) error {
	name, ok := value.(string)
	if !ok || name == "" || strings.ContainsAny(name, "/ \t\r\n") {
		return fmt.Errorf("%s is not a host: want a name or an address, such as \"localhost\"", shown(value))
	}
	*host = name
	return nil
}

// parsePort takes a string or a number.
func parsePort(value any, port *int) error {
	n, err := strconv.Atoi(fmt.Sprint(value))
	if err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%v is not a port: want 0 to 65535", value)
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

// parsePeriod takes "500us", "10ms" or "1h".
func parsePeriod(value any, period *time.Duration) error {
	text, ok := value.(string)
	d, err := time.ParseDuration(text)
	if !ok || err != nil || d <= 0 {
		return fmt.Errorf("%s: want a duration above 0, such as \"500us\" or \"10ms\"", shown(value))
	}
	*period = d
	return nil
}

func parseCount(value any, count *int) error {
	n, ok := value.(int64)
	if !ok || n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("%s: want a number from 1 to %d", shown(value), math.MaxInt32)
	}
	*count = int(n)
	return nil
}
