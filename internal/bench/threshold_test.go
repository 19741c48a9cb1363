package bench

import "testing"

func TestThreshold(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{Name: "a", Metrics: map[string]float64{"latency_p99_ms": 24, "lost": 0, "end_to_end_latency_p999_ms": 900, "drop_rate": 0.02, "seconds": 61}},
		{Name: "b", Metrics: map[string]float64{"latency_p99_ms": 26, "messages_per_second": 2e6}},
		{Name: "not built"},
	}
	for text, want := range map[string]bool{
		"p99<25ms": false, "p99<0.03s": true, "p99 <= 26": true, "p99<26000us": false, "lost==0": true, "lost!=0": false,
		"end_to_end_p99.9<1s": true, "end_to_end_p999>900": false, "drop_rate<=2%": true, "drop_rate<1%": false,
		"messages_per_second>=2M": true, "messages_per_second>2000k": false, "seconds>1m": true,
		"write_p50<1ms": false, // nobody has it
	} {
		var bound Threshold
		if err := bound.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if c := bound.Check(rows); c.OK != want || c.Name != text || c.Detail == "" {
			t.Errorf("%s: %+v, want %t", text, c, want)
		}
	}
	for _, text := range []string{"", "p99", "p99<", "p99<x", "<5", "p99=5", "P99<5", "lost<5ms", "p99<5ms x", "p99<1.2.3"} {
		if err := new(Threshold).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
