package bench

import (
	"testing"

	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
)

// faultyServer starts a server of package faulty, which ends with the test.
func faultyServer(t *testing.T, s *faulty.Server) string {
	t.Helper()
	t.Cleanup(s.Close)
	return s.URL
}

// TestPump_CountsWhatItsScheduleOwed: a server that takes 20 ms for each message
// handles a hundredth of the offered load in time.
func TestPump_CountsWhatItsScheduleOwed(t *testing.T) {
	t.Parallel()
	url := faultyServer(t, faulty.Echo(faulty.Slow))
	p, err := NewPump(t.Context(), PumpConfig{URL: url, Clients: 1, Messages: 100, Payload: 32, Answer: EchoAnswer, Rate: 5000, Window: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if seen.Sent != 100 || seen.Unsent < 50 || seen.Unsent >= 100 {
		t.Errorf("%d of %d not sent in time: want most", seen.Unsent, seen.Sent)
	}
	if seen.Late.Count() > 50 {
		t.Errorf("%d messages that the server held up count as the generator's lateness", seen.Late.Count())
	}
}
