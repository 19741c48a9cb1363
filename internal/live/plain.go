package live

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// plain writes a line for each interval of a row.
type plain struct {
	every time.Duration

	mu    sync.Mutex // guards the fields below
	out   io.Writer
	ticks []bench.Tick // since the last line, of one row, trial and phase
}

func newPlain(out io.Writer, every time.Duration) *plain { return &plain{out: out, every: every} }

func (p *plain) line(text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.out, text)
	return err
}

func (p *plain) tick(t bench.Tick) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.ticks); n > 0 {
		if last := p.ticks[n-1]; last.Row != t.Row || last.Trial != t.Trial || last.Phase != t.Phase {
			p.write()
		}
	}
	p.ticks = append(p.ticks, t)
	seconds := 0.5 // ticks are never quite on time
	for _, t := range p.ticks {
		seconds += t.Seconds
	}
	if seconds >= p.every.Seconds() {
		p.write()
	}
}

// flush writes a line for the ticks that have none yet.
func (p *plain) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write()
}

// write writes one line. The caller holds the lock.
func (p *plain) write() {
	if len(p.ticks) > 0 {
		fmt.Fprintln(p.out, interval(p.ticks))
		p.ticks = p.ticks[:0]
	}
}

// interval summarises ticks: p50 is the median of their p50, p99 the worst.
func interval(ticks []bench.Tick) string {
	last := ticks[len(ticks)-1]
	var messages, seconds, failed float64
	var p50, p99 []float64
	for _, t := range ticks {
		messages += t.Metrics["messages_per_second"] * t.Seconds
		seconds += t.Seconds
		failed += t.Metrics["errors"]
		if ms, ok := t.Metrics["latency_p50_ms"]; ok {
			p50, p99 = append(p50, ms), append(p99, t.Metrics["latency_p99_ms"])
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, round %d, %s: %.0f s", last.Row, last.Trial+1, last.Phase, last.At)
	rate := 0.0
	if seconds > 0 {
		rate = messages / seconds
	}
	fmt.Fprintf(&b, "  %s/s", count(rate))
	if offered := last.Metrics["offered_messages_per_second"]; offered > 0 {
		fmt.Fprintf(&b, " of %s/s", count(offered))
	}
	if len(p50) > 0 {
		fmt.Fprintf(&b, "  p50 %s  p99 %s", duration(bench.Median(p50)), duration(slices.Max(p99)))
	}
	fmt.Fprintf(&b, "  errors %s  missing %s", count(failed), count(last.Metrics["missing"]))
	return b.String()
}
