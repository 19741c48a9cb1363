package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/bench"
)

// everything is a kind that asks everything.
var everything = &loadKind{Message: "message", sender: "sender", receivers: "receivers", Stored: true}

// example is a load with round numbers.
func example(k *loadKind) []input {
	values := map[string]float64{
		"senders": 86_400, "messages_per_sender_per_day": 10, "messages_per_day": 864_000, "peak_factor": 5, "fan_out": 2, "bytes": 900,
		"retention_days": 100, "disk_gb": 50, "price_per_year": 700, "price_per_gb_month": 0.1,
	}
	in := k.inputs()
	for i := range in {
		in[i].Value = values[in[i].Name]
	}
	return in
}

var measuredRow = candidate{Measured: map[string]float64{
	"measured_messages_per_second": 400, "measured_deliveries_per_second": 500, "overhead_bytes": 100,
}}

func TestAnswer_KnownLoad(t *testing.T) {
	t.Parallel()
	a, err := answer(everything.formulas(), example(everything), measuredRow)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"messages_per_day":         864_000,
		"peak_messages_per_second": 50, "peak_deliveries_per_second": 100,
		"headroom":     5, // 400/50 of messages, 500/100 of deliveries
		"stored_bytes": 1000, "gb_per_day": 0.864, "disk_needed_gb": 86.4, "days_until_full": 50 / 0.864,
		"cost_per_year":    700 + 12*86.4*0.1,
		"cost_per_million": (700 + 12*86.4*0.1) / (0.864 * 365),
	} {
		if math.Abs(a[name]-want) > 1e-9*want {
			t.Errorf("%s is %v, want %v", name, a[name], want)
		}
	}
	// Without deliveries, only messages limit.
	a, err = answer(everything.formulas(), example(everything), candidate{Measured: map[string]float64{"measured_messages_per_second": 400}})
	if err != nil || a["headroom"] != 8 {
		t.Errorf("%v, %v", a, err)
	}
}

func TestCandidates(t *testing.T) {
	t.Parallel()
	r := &bench.Result{Scenario: "queue", Valid: true, Params: map[string]any{"payload": 1000.0}, Rows: []bench.Row{
		{Name: "lease", Limiter: bench.LimitRate, Metrics: map[string]float64{
			"messages_per_second": 100, "table_bytes_per_message": 1100, "index_bytes_per_message": 50}},
		{Name: "raw COPY", Metrics: map[string]float64{"messages_per_second": 1e6}},
		{Name: "not measured"},
	}}
	all := candidates([]File{{Result: r}})
	if len(all) != 1 || !all[0].AtLeast || !all[0].BytesKnown || all[0].Measured["overhead_bytes"] != 150 {
		t.Errorf("%+v", all)
	}
	r.Valid = false
	if all := candidates([]File{{Result: r}}); len(all) != 0 {
		t.Errorf("an invalid result carries a load: %+v", all)
	}
}

// TestScript_ComputesTheSame runs the page's script on a generated page, with a
// stub of the few browser functions that it uses.
func TestScript_ComputesTheSame(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed: it runs the page's script")
	}
	load := &loadView{Kind: everything, Inputs: example(everything), Formulas: everything.formulas(), Rows: []loadRow{{candidate: measuredRow}}}
	all, err := newIsland(&view{Groups: []group{{Load: load}}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, in := range load.Inputs {
		values[in.Name] = in.Value
	}
	inputs, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(asset("report.js"), "for (const load of data.loads) {", fmt.Sprintf("console.log(JSON.stringify(answer(data.loads[0], %s, data.loads[0].rows[0].measured)));\nfor (const load of []) {", inputs), 1)
	script = fmt.Sprintf(`globalThis.document = { getElementById: (id) => id === "data" ? { textContent: %q } : null };
globalThis.ResizeObserver = class {};
globalThis.matchMedia = () => ({ addEventListener() {} });
%s`, data, script)
	out, err := exec.CommandContext(t.Context(), node, "-e", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var got answers
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := answer(load.Formulas, load.Inputs, measuredRow)
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range want {
		if math.Abs(got[name]-w) > 1e-9*math.Abs(w) {
			t.Errorf("%s: the script has %v, Go %v", name, got[name], w)
		}
	}
}
