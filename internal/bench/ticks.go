package bench

import (
	"context"
	"sync"
	"time"
)

// tickPeriod is the time between two Ticks of a row.
const tickPeriod = time.Second

// Counters describe how far a trial is: numbers since it began, and the
// latencies since the last Counters.
type Counters struct {
	Phase string
	// Messages is the number of messages done: answered, or read and
	// acknowledged. Some scenarios count calls.
	Messages   int64
	Deliveries int64 // to clients
	Errors     int64
	Missing    int64   // written and not read, or offered and not sent
	Offered    float64 // requested messages a second; 0: as fast as possible
	// Checkpoints is the number of checkpoints that PostgreSQL has begun; 0 if it is unknown.
	Checkpoints int64
	// Latency has the latencies since the last Counters, and Late how much
	// later than due each message was sent. Both may be nil.
	Latency, Late *Histogram
}

// Ticker produces a Tick from Counters each second, until it is stopped.
type Ticker struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

// StartPulse starts a Ticker at the start of a row's trial. count is called by
// one goroutine; sampler may be nil.
func (r *Recording) StartPulse(ctx context.Context, row string, trial int, sampler *Sampler, count func() Counters) *Ticker {
	return r.ResumePulse(ctx, time.Now(), row, trial, sampler, count)
}

// ResumePulse is StartPulse for a later part of a trial that has begun already. The
// counts of count start again.
func (r *Recording) ResumePulse(ctx context.Context, began time.Time, row string, trial int, sampler *Sampler, count func() Counters) *Ticker {
	ctx, stop := context.WithCancel(ctx)
	p := &Ticker{stop: stop}
	last, lastAt, lastUsed := count(), time.Now(), sampler.Latest()
	p.done.Go(func() {
		tick := time.NewTicker(tickPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			now, at, used := count(), time.Now(), sampler.Latest()
			m := now.since(last, at.Sub(lastAt).Seconds())
			cpuOf(m, lastUsed, used)
			r.Tick(Tick{
				Row: row, Trial: trial, Phase: now.Phase, At: at.Sub(began).Seconds(),
				Seconds: at.Sub(lastAt).Seconds(), Metrics: m,
			})
			last, lastAt, lastUsed = now, at, used
		}
	})
	return p
}

// Stop ends the ticks. It may be called more than once, also on a nil Ticker.
func (p *Ticker) Stop() {
	if p == nil {
		return
	}
	p.stop()
	p.done.Wait()
}

// since returns what happened between two Counters.
func (c Counters) since(last Counters, seconds float64) map[string]float64 {
	m := map[string]float64{
		"messages_per_second": float64(c.Messages-last.Messages) / seconds,
		"errors":              float64(c.Errors - last.Errors),
		"missing":             float64(c.Missing),
	}
	if c.Deliveries > 0 {
		m["deliveries_per_second"] = float64(c.Deliveries-last.Deliveries) / seconds
	}
	if c.Checkpoints > 0 && last.Checkpoints > 0 {
		m["postgres_checkpoints"] = float64(c.Checkpoints - last.Checkpoints)
	}
	if c.Offered > 0 {
		m["offered_messages_per_second"] = c.Offered
	}
	if c.Latency != nil {
		c.Latency.Metrics(m, "")
	}
	if c.Late != nil && c.Late.Count() > 0 {
		m["generator_late_p99_ms"] = milliseconds(c.Late.Quantile(0.99))
	}
	return m
}

// cpuOf adds the cores that each role used between two samples, and the memory
// at the second.
func cpuOf(m map[string]float64, last, now map[Role]Sample) {
	for role, name := range map[Role]string{Server: "server", Postgres: "postgres", Generator: "generator"} {
		a, b := last[role], now[role]
		seconds := b.At.Sub(a.At).Seconds()
		if b.At.IsZero() || seconds <= 0 {
			continue
		}
		m[name+"_cpu_cores"] = (b.CPUSeconds - a.CPUSeconds) / seconds
		if b.RSSBytes > 0 {
			m[name+"_rss_bytes"] = float64(b.RSSBytes)
		}
	}
}
