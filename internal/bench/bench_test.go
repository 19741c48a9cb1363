package bench

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidewire/tidewire/websocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPayload_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, size := range []int{MinPayload, 9, 100, 5000} {
		filler := AppendPayload(nil, 0, 0, size)
		for _, name := range [][2]int{{0, 0}, {1, 2}, {65535, math.MaxUint32}, {7, 1_000_000}} {
			p := AppendPayload(nil, name[0], name[1], size)
			client, seq, ok := ParsePayload(p, filler)
			if !ok || client != name[0] || seq != name[1] || len(p) != size {
				t.Errorf("size %d, %v: parsed %d %d %v", size, name, client, seq, ok)
			}
		}
		for at := range filler { // a payload that was damaged anywhere names itself or nothing else
			p := slices.Clone(filler)
			p[at] = 0
			if _, _, ok := ParsePayload(p, filler); ok {
				t.Errorf("size %d: damage at %d was not seen", size, at)
			}
		}
		if _, _, ok := ParsePayload(filler[:size-1], filler); ok {
			t.Errorf("size %d: a short payload was accepted", size)
		}
	}
}

// echoServer returns every message; tamper may change one before it is sent.
func echoServer(t *testing.T, tamper func(n int64, p []byte) []byte) string {
	t.Helper()
	var count atomic.Int64
	return served(t, func(c *websocket.Conn) {
		for {
			messages, err := c.Read()
			for _, m := range messages {
				if p := tamper(count.Add(1), m.Payload); p != nil {
					c.Queue(m.Op, p)
				}
			}
			if err != nil {
				c.Close(websocket.StatusNormal, "")
				return
			}
		}
	})
}

func TestPump_EchoClosedAndOpenLoop(t *testing.T) {
	t.Parallel()
	url := echoServer(t, func(_ int64, p []byte) []byte { return p })
	for name, cfg := range map[string]PumpConfig{
		"closed": {Window: 4},
		"one":    {Window: 1},
		"open":   {Rate: 20_000},
		"flood":  {},
	} {
		cfg.URL, cfg.Clients, cfg.Messages, cfg.Payload, cfg.Answer = url, 5, 400, 64, EchoAnswer
		p, err := NewPump(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := p.Run(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if seen.Sent != 2000 || seen.Answered != 2000 || seen.Unsent != 0 || seen.Closed != 5 {
			t.Errorf("%s: %+v", name, seen)
		}
		if want := int64(2000); name != "flood" && seen.Latency.Count() != want {
			t.Errorf("%s: %d latencies, want %d", name, seen.Latency.Count(), want)
		}
		if name == "open" {
			if took := seen.LastClose.Sub(seen.FirstFrame); took < 90*time.Millisecond {
				t.Errorf("2000 messages at 20,000/s took %v, want about 100 ms", took)
			}
		}
	}
}

func TestResult_MediansAndFile(t *testing.T) {
	t.Parallel()
	r := NewResult("ingest", map[string]any{"clients": 1})
	for _, seconds := range []float64{3, 1, 2} {
		r.AddTrial("auto", "text", map[string]float64{"seconds": seconds})
	}
	r.Finish()
	if r.Valid {
		t.Error("a result without a check is valid")
	}
	r.Check("rows", true, "%d", 1)
	r.Finish()
	if !r.Valid || r.Row("auto").Metrics["seconds"] != 2 || r.Row("none") != nil {
		t.Errorf("%+v", r)
	}
	path := filepath.Join(t.TempDir(), "deep", "r.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil || !back.Valid || back.Row("auto").Metrics["seconds"] != 2 || len(back.Row("auto").Trials) != 3 {
		t.Errorf("%+v, %v", back, err)
	}
	r.Check("other", false, "")
	if r.Finish(); r.Valid {
		t.Error("valid with a failed check")
	}
	data, _ := json.Marshal(map[string]int{"schema": 99})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("read a result of another schema")
	}
}

// cpuSeconds is the CPU time of this process.
func cpuSeconds(t *testing.T) float64 {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func TestSampler_CountsOwnWork(t *testing.T) {
	t.Parallel()
	s := StartSampler(t.Context(), 0, 0)
	const work = 0.1 // seconds of CPU time, however long that takes beside others
	before := cpuSeconds(t)
	for x := 0; cpuSeconds(t)-before < work; {
		x++
	}
	usage := s.Stop()
	if got, all := usage[Generator].CPUSeconds, cpuSeconds(t)-before; got < work/2 || got > all+work {
		t.Errorf("%v to %v s of work counted as %v CPU seconds", work, all, got)
	}
	if usage[Generator].PeakRSSBytes < 1<<20 || usage[Server].CPUSeconds != 0 {
		t.Errorf("usage %+v", usage)
	}
}
