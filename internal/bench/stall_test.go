package bench

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
)

// The server does nothing for a tenth of a run. Every message that is due
// meanwhile must wait, and its wait is longer the earlier it was due, so that the
// 95th percentile of all latencies is half of the stall. A generator that measured
// from its sends would report almost nothing. Other load on the machine makes
// latencies longer, never shorter.
const (
	stall    = 300 * time.Millisecond
	stallRun = 10 * stall
	stallPer = 1000 // messages/s
)

func stalling(t *testing.T, s *faulty.Server) string {
	s.Stall, s.StallAt = stall, int(stallRun.Seconds()*stallPer/2)
	return faultyServer(t, s)
}

func showsStall(t *testing.T, latency *Histogram) {
	t.Helper()
	if p95, worst := latency.Quantile(0.95), latency.Quantile(1); p95 < stall/4 || worst < stall*9/10 {
		t.Errorf("p95 %v, the worst %v of %d: the server did nothing for %v of %v", p95, worst, latency.Count(), stall, stallRun)
	}
}

func TestStall_Pump(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]int{"any number unanswered": 0, "one unanswered": 1} {
		url := stalling(t, faulty.Echo(faulty.Honest))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clients = 3
			p, err := NewPump(t.Context(), PumpConfig{
				URL: url, Clients: clients, Messages: int(stallRun.Seconds()*stallPer) / clients, Payload: 32,
				Answer: EchoAnswer, Rate: stallPer, Window: window,
			})
			if err != nil {
				t.Fatal(err)
			}
			seen, err := p.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			showsStall(t, seen.Latency)
		})
	}
}

func TestStall_Chat(t *testing.T) {
	t.Parallel()
	const clients = 10
	r := runChat(t, ChatConfig{
		URL: stalling(t, faulty.Chat(faulty.Honest)), Clients: clients, Hold: stallRun, Rate: stallPer / clients, Payload: 128, Checked: clients,
		Patience: time.Minute,
	})
	showsStall(t, r.Latency)
	if r.Lost() != 0 {
		t.Errorf("%d of %d lost", r.Lost(), r.Expected)
	}
}
