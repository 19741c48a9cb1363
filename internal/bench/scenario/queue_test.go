package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
)

// TestPace: the writers' calls together are even, without a burst at the start.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		load := QueueLoad{Writers: 4, Batch: 2, Rate: 800} // a call every 2.5 ms
		for n := range 100 {
			writer, call := n%4, n/4
			p := newPace(start, load, writer, sleepByClock)
			due, _, ok := p.wait(t.Context(), call)
			if want := start.Add(time.Duration(n) * 2500 * time.Microsecond); !ok || !due.Equal(want) || !time.Now().Equal(want) {
				t.Fatalf("call %d of writer %d is due after %v, want %v", call, writer, due.Sub(start), want.Sub(start))
			}
		}
	})
}

// sleepByClock uses the fake clock of a test.
func sleepByClock(ctx context.Context, until time.Time) bool {
	time.Sleep(time.Until(until))
	return ctx.Err() == nil
}

func TestPace_LateCallsKeepTheirTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := newPace(start, QueueLoad{Writers: 1, Batch: 1, Rate: 100}, 0, sleepByClock)
		time.Sleep(95 * time.Millisecond)
		due, _, ok := p.wait(t.Context(), 3)
		if !ok || due.Sub(start) != 30*time.Millisecond || time.Since(start) != 95*time.Millisecond {
			t.Errorf("call 3 is due after %v, %v", due.Sub(start), ok)
		}
		if missed := p.missed(3); missed != 7 { // calls 3 to 9
			t.Errorf("%d missed, want 7", missed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, ok := p.wait(ctx, 50); ok {
			t.Error("a call after the end")
		}
	})
}

// TestMeter_Phases: an answer counts in the phase in which it arrives.
func TestMeter_Phases(t *testing.T) {
	t.Parallel()
	all := newMeters(2)
	all[0].wrote(time.Millisecond, nil)
	all.enter(measured)
	all[0].wrote(2*time.Millisecond, nil)
	all[1].wrote(time.Millisecond, errors.New("away"))
	all[1].read(time.Millisecond, []time.Duration{time.Second, 2 * time.Second})
	all.enter(drain)
	all[1].wrote(time.Millisecond, nil)
	sum := all.sum()
	if sum[warmUp].Count != 1 || sum[measured].Count != 3 || sum[measured].Errors != 1 || sum[drain].Count != 1 {
		t.Errorf("%+v %+v %+v", sum[warmUp], sum[measured], sum[drain])
	}
	if n := sum[measured].EndToEnd.Count(); n != 2 {
		t.Errorf("%d ages", n)
	}
	text, err := json.Marshal(sum[measured])
	if err != nil {
		t.Fatal(err)
	}
	back := newTally()
	if err := json.Unmarshal(text, back); err != nil || back.Count != 3 || back.EndToEnd.Quantile(1) < 1990*time.Millisecond {
		t.Errorf("came back as %+v, %v", back, err)
	}
}

// lazy is a runner that does nothing.
type lazy struct{ all meters }

func (r lazy) run(ctx context.Context) error { <-ctx.Done(); return nil }
func (r lazy) meters() meters                { return r.all }
func (r lazy) report(sent []int) *workerReport {
	return &workerReport{Phases: r.all.sum(), Sent: sent, Accounts: []bench.Account{{}}}
}

// TestPart_Obeys its orders, and ends with its parent.
func TestPart_Obeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		orders string
		ends   string // the error; none if it reports
	}{
		"in order":        {`{"do":"begin"} {"do":"measure"} {"do":"end"} {"do":"stop","sent":[3]}`, ""},
		"unknown":         {`{"do":"begin"} {"do":"dance"}`, "dance"},
		"the parent ends": {`{"do":"begin"}`, "read orders"},
	} {
		var out bytes.Buffer
		p := &worker{lines: json.NewDecoder(strings.NewReader(c.orders)), out: json.NewEncoder(&out)}
		err := p.obey(t.Context(), lazy{newMeters(1)})
		if c.ends != "" {
			if err == nil || !strings.Contains(err.Error(), c.ends) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var last event
		for lines := json.NewDecoder(&out); ; {
			var e event
			if lines.Decode(&e) == io.EOF {
				break
			}
			last = e
		}
		if err != nil || last.Report == nil || len(last.Report.Sent) != 1 {
			t.Errorf("%s: %v, said %+v", name, err, last)
		}
	}
}

// TestFlatness compares the reads in the last fifth of a run with those in the first,
// where there are enough reports for that.
func TestFlatness(t *testing.T) {
	t.Parallel()
	start := time.Now()
	for name, c := range map[string]struct {
		acked []int // at each report
		want  float64
		none  bool
	}{
		"even":           {acked: []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, want: 1},
		"slower":         {acked: []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90}, want: 0.5},
		"nothing at all": {acked: []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, none: true},
		"stuck":          {acked: []int{0, 10, 20, 30, 30, 30, 30, 30, 30, 30, 30}, want: 0},
		"few reports":    {acked: []int{0, 10, 20, 30, 40, 50, 60, 70, 80, 90}, none: true},
	} {
		r := &queueRun{}
		for i, acked := range c.acked {
			r.series = append(r.series, queueSample{at: start.Add(time.Duration(i) * time.Second), acked: acked})
		}
		m := make(map[string]float64)
		r.flatness(m)
		if got, ok := m["last_fifth_share"]; ok == c.none || got != c.want {
			t.Errorf("%s: %v, %t, want %v, %t", name, got, ok, c.want, !c.none)
		}
	}
}
