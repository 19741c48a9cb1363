package bench

import (
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench/internal/faulty"
)

// faultyServer starts a server of package faulty, which ends with the test.
func faultyServer(t *testing.T, s *faulty.Server) string {
	t.Helper()
	t.Cleanup(s.Close)
	return s.URL
}

// TestPump_NoticesVicesOfAnswers: for echoes and for counts, both of which a
// server must send in order. A missing count does no harm, since the next one
// includes it.
func TestPump_NoticesVicesOfAnswers(t *testing.T) {
	t.Parallel()
	for _, vice := range faulty.Vices {
		for name, c := range map[string]struct {
			server *faulty.Server
			answer Answer
			errs   bool
		}{
			"echo":   {faulty.Echo(vice), EchoAnswer, vice > faulty.Slow},
			"counts": {faulty.Ingest(vice, func([][]byte) {}), CountAnswer, vice > faulty.Lossy},
		} {
			url := faultyServer(t, c.server)
			t.Run(name+" "+vice.String(), func(t *testing.T) {
				t.Parallel()
				p, err := NewPump(t.Context(), PumpConfig{URL: url, Clients: 2, Messages: 100, Payload: 32, Answer: c.answer, Window: 20})
				if err != nil {
					t.Fatal(err)
				}
				seen, err := p.Run(t.Context())
				if (err != nil) != c.errs {
					t.Fatalf("%v", err)
				}
				if err == nil && (seen.Answered != 200 || seen.Closed != 2) {
					t.Errorf("%+v", seen)
				}
				if vice == faulty.Slow && seen.Latency.Quantile(0.5) < faulty.Delay {
					t.Errorf("the median is %v, of a server that takes %v", seen.Latency.Quantile(0.5), faulty.Delay)
				}
			})
		}
	}
}

// TestPump_WaitsForTheLastAnswer, and says that it did not come.
func TestPump_WaitsForTheLastAnswer(t *testing.T) {
	t.Parallel()
	url := faultyServer(t, faulty.Silent(func([][]byte) {}))
	p, err := NewPump(t.Context(), PumpConfig{
		URL: url, Clients: 1, Messages: 10, Payload: 32, Answer: CountAnswer, Patience: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen, err := p.Run(t.Context()); err == nil {
		t.Errorf("no error: %+v", seen)
	}
}

func TestLanes_NoticesVicesOfEchoes(t *testing.T) {
	t.Parallel()
	const requests, tenth = 200, 20
	for vice, want := range map[faulty.Vice]struct{ answered, broken, reordered int }{
		faulty.Honest:      {answered: requests},
		faulty.Slow:        {answered: requests},
		faulty.Lossy:       {answered: requests - tenth},
		faulty.Duplicating: {answered: requests, broken: tenth}, // the second one is no dummy
		faulty.Reordering:  {answered: requests, reordered: tenth},
	} {
		url := faultyServer(t, faulty.Lanes(vice, 500))
		t.Run(vice.String(), func(t *testing.T) {
			t.Parallel()
			r, err := Lanes(t.Context(), LanesConfig{URL: url, Every: time.Millisecond, Requests: requests, DummySize: 500, Patience: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if r.Sent != requests || r.Answered != want.answered || r.Broken != want.broken || r.Reordered != want.reordered {
				t.Errorf("sent %d, answered %d, broken %d, reordered %d; want %+v", r.Sent, r.Answered, r.Broken, r.Reordered, want)
			}
			if vice == faulty.Slow && r.Latency.Quantile(0.5) < faulty.Delay/2 {
				t.Errorf("the median is %v, of a server that takes %v", r.Latency.Quantile(0.5), faulty.Delay)
			}
		})
	}
}

func TestChat_NoticesVicesOfDeliveries(t *testing.T) {
	t.Parallel()
	for _, vice := range faulty.Vices {
		url := faultyServer(t, faulty.Chat(vice))
		t.Run(vice.String(), func(t *testing.T) {
			t.Parallel()
			cfg := lively(url)
			if vice == faulty.Lossy {
				cfg.Patience = time.Second // for what never comes
			}
			r := runChat(t, cfg)
			lost, twice, late := r.Lost() > 0, r.Checked.Duplicated > 0, r.Checked.Reordered > 0
			if r.Expected == 0 || lost != (vice == faulty.Lossy) || twice != (vice == faulty.Duplicating) || late != (vice == faulty.Reordering) {
				t.Errorf("%d expected, %d lost, %d duplicated, %d reordered", r.Expected, r.Lost(), r.Checked.Duplicated, r.Checked.Reordered)
			}
			if vice == faulty.Slow && r.Latency.Quantile(0.5) < faulty.Delay {
				t.Errorf("the median is %v, of a server that takes %v", r.Latency.Quantile(0.5), faulty.Delay)
			}
		})
	}
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
