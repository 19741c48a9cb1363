package cli

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// seconds is a duration flag that accepts "60" for 60 seconds, and also "60s",
// "300ms" or "1h".
type seconds time.Duration

func (s seconds) String() string { return time.Duration(s).String() }

// bytes is a size flag: "64MiB", "64MB", "512k" or a plain number. All units
// are powers of 1,024.
type bytes int64

// percent is a flag for a percentage, "60%" or "60", up to 100.
type percent float64

func parsePercent(text string) (percent, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(n > 0 && n <= 100) {
		return 0, fmt.Errorf("invalid percentage %q: give one such as 60%%", text)
	}
	return percent(n / 100), nil
}

// memory is a flag for a share of the machine's memory ("50%") or a size ("2GiB").
type memory struct {
	share percent // if size is 0
	size  bytes
}

func (m memory) String() string {
	if m.size > 0 {
		return strconv.FormatInt(int64(m.size), 10)
	}
	return fmt.Sprintf("%g%%", 100*float64(m.share))
}

// minMemory is the smallest amount of memory with which a server works.
const minMemory = 64 << 20

func parseMemory(text string) (m memory, err error) {
	if strings.HasSuffix(text, "%") {
		m.share, err = parsePercent(text)
		return m, err
	}
	if m.size, err = parseBytes(text); err != nil || m.size < minMemory {
		return m, fmt.Errorf("invalid amount of memory %q: give a share of the machine's, such as 50%%, or 64MiB or more", text)
	}
	return m, nil
}

// of returns the number of bytes, on a machine with that much memory.
func (m memory) of(machine int64) int64 {
	if m.size > 0 {
		return int64(m.size)
	}
	return max(minMemory, int64(float64(m.share)*float64(machine)))
}

func valueMappers() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		for _, o := range []kong.Option{
			kong.TypeMapper(reflect.TypeFor[seconds](), mapper(parseSeconds)),
			kong.TypeMapper(reflect.TypeFor[lifetime](), mapper(parseLifetime)),
			kong.TypeMapper(reflect.TypeFor[percent](), mapper(parsePercent)),
			kong.TypeMapper(reflect.TypeFor[bytes](), mapper(parseBytes)),
			kong.TypeMapper(reflect.TypeFor[memory](), mapper(parseMemory)),
		} {
			if err := o.Apply(k); err != nil {
				return err
			}
		}
		return nil
	})
}

func mapper[T any](parse func(string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		value, err := parse(text)
		if err != nil {
			return err
		}
		target.Set(reflect.ValueOf(value))
		return nil
	}
}

func parseSeconds(text string) (seconds, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e9 {
		return seconds(n * float64(time.Second)), nil
	}
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		if n, err := strconv.ParseUint(days, 10, 14); err == nil {
			return seconds(time.Duration(n) * 24 * time.Hour), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("invalid duration %q: give seconds such as 60, or 60s, 300ms, 1h, 7d", text)
	}
	return seconds(d), nil
}

func parseBytes(text string) (bytes, error) {
	digits := strings.TrimRight(text, "kKmMgGiIbB ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	shift, ok := map[string]uint{
		"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30,
	}[unit]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok || n < 0 || n > 1<<62>>shift {
		return 0, fmt.Errorf("invalid size %q: give bytes such as 65536, or 64KB, 8MiB, 1GB; a KB is 1,024 bytes", text)
	}
	return bytes(n << shift), nil
}
