package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tidewire/tidewire/internal/bench"
)

// input is a number that describes the reader's load, and that the reader can change.
type input struct {
	Name, Label, Unit string
	Value             float64
}

// formula computes one number from the inputs, the measured numbers, and earlier
// formulas. The page shows the expression, and Go and the page's script evaluate
// it: there is no second copy that could differ.
type formula struct{ Name, Expression, Meaning string }

var formulas = []formula{
	{"messages_per_day", "users * messages_per_user_per_day", "messages a day"},
	{"peak_messages_per_second", "messages_per_day / 86400 * peak_factor", "needed at the peak, messages/s"},
	{"peak_deliveries_per_second", "peak_messages_per_second * fan_out", "needed at the peak, deliveries/s"},
	{"headroom", "min(measured_messages_per_second / peak_messages_per_second, measured_deliveries_per_second / peak_deliveries_per_second)",
		"measured rate divided by the needed rate; a rate that was not measured does not limit"},
	{"stored_bytes", "is_stored * (bytes + overhead_bytes)", "bytes of a message on disk, including indexes, without the write-ahead log, which PostgreSQL recycles"},
	{"gb_per_day", "messages_per_day * stored_bytes / 1e9", "growth a day, GB"},
	{"disk_needed_gb", "gb_per_day * retention_days", "disk space that the retention needs, GB"},
	{"days_until_full", "disk_gb / gb_per_day", "days until the disk is full, if the retention needs more than the disk has"},
	{"cost_per_year", "price_per_year + 12 * disk_needed_gb * price_per_gb_month", "cost a year, in the currency of the prices"},
	{"cost_per_million", "cost_per_year / (messages_per_day * 365) * 1e6", "cost of a million messages"},
}

// candidate is a row that might carry the reader's load.
type candidate struct {
	Name string `json:"name"`
	// Measured has the numbers that formulas use. A rate that was not measured is
	// absent, and counts as unlimited.
	Measured map[string]float64 `json:"measured"`
	// AtLeast: the row kept its rate with capacity to spare, so that the computed
	// headroom is a lower bound.
	AtLeast bool `json:"at_least"`
	// BytesKnown: the size of a message on disk was measured. Otherwise the
	// answers about the disk count only the payload.
	BytesKnown bool `json:"bytes_known"`
}

// answers has the results of all formulas.
type answers map[string]float64

// answer evaluates the formulas for a candidate.
func answer(inputs []input, c candidate) (answers, error) {
	known := answers{"measured_messages_per_second": math.Inf(1), "measured_deliveries_per_second": math.Inf(1), "overhead_bytes": 0, "is_stored": 0}
	for name, v := range c.Measured {
		known[name] = v
	}
	for _, in := range inputs {
		known[in.Name] = in.Value
	}
	for _, f := range formulas {
		expression, err := parser.ParseExpr(f.Expression)
		if err != nil {
			return nil, fmt.Errorf("formula %s: %w", f.Name, err)
		}
		if known[f.Name], err = evaluate(expression, known); err != nil {
			return nil, fmt.Errorf("formula %s: %w", f.Name, err)
		}
	}
	return known, nil
}

// evaluate supports numbers, names, + - * /, parentheses and min: the expressions
// that are the same in Go and in JavaScript.
func evaluate(e ast.Expr, known answers) (float64, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.ParenExpr:
		return evaluate(e.X, known)
	case *ast.Ident:
		v, ok := known[e.Name]
		if !ok {
			return 0, fmt.Errorf("nothing is called %s", e.Name)
		}
		return v, nil
	case *ast.CallExpr:
		return smallest(e, known)
	case *ast.BinaryExpr:
		x, err := evaluate(e.X, known)
		if err != nil {
			return 0, err
		}
		y, err := evaluate(e.Y, known)
		return operate(e.Op, x, y), err
	}
	return 0, fmt.Errorf("%T is not part of a formula", e)
}

func smallest(call *ast.CallExpr, known answers) (float64, error) {
	if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != "min" {
		return 0, fmt.Errorf("min is the only function of a formula")
	}
	least := math.Inf(1)
	for _, arg := range call.Args {
		v, err := evaluate(arg, known)
		if err != nil {
			return 0, err
		}
		least = min(least, v)
	}
	return least, nil
}

func operate(op token.Token, x, y float64) float64 {
	switch op {
	case token.ADD:
		return x + y
	case token.SUB:
		return x - y
	case token.MUL:
		return x * y
	case token.QUO:
		return x / y
	}
	return math.NaN()
}

// defaultInputs describes a mid-sized application, with payload, retention and
// prices from the parameters of the results.
func defaultInputs(files []File) []input {
	in := []input{
		{"users", "users", "", 10_000},
		{"messages_per_user_per_day", "messages of a user", "a day", 100},
		{"peak_factor", "peak factor", "× the mean rate", 5},
		{"fan_out", "fan-out", "deliveries of a message", 1},
		{"bytes", "payload", "bytes", 1024},
		{"retention_days", "retention", "days", 30},
		{"disk_gb", "disk", "GB", 100},
		{"price_per_year", "price of the machine", "a year", 0},
		{"price_per_gb_month", "price of the disk", "per GB and month", 0},
	}
	for _, f := range files {
		set := func(name string, v float64) {
			for i := range in {
				if in[i].Name == name && v > 0 {
					in[i].Value = v
				}
			}
		}
		set("bytes", number(f.Params["payload"]))
		set("fan_out", fanOut(f.Result))
		if prices, ok := f.Params["prices"].(map[string]any); ok {
			set("price_per_year", number(prices["per_year"])+number(prices["per_hour"])*365*24)
			set("price_per_gb_month", number(prices["per_gb_month"]))
			set("retention_days", number(prices["retention"])/(24*3600e9)) // nanoseconds
		}
		if len(candidates([]File{f})) > 0 {
			break // the first result that has values
		}
	}
	return in
}

// number converts a parameter, from a file or from a program; 0 if it is not a number.
func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case json.Number:
		f, _ := v.Float64()
		return f
	case int:
		return float64(v)
	}
	return 0
}

// fanOut returns the number of receivers of a message, as measured by the first row of a chat.
func fanOut(r *bench.Result) float64 {
	for _, row := range r.Rows {
		d, ok := row.Metrics["deliveries_per_second"]
		if m := row.Metrics["messages_per_second"]; ok && m > 0 {
			return math.Round(d / m)
		}
		if r.Scenario == "pubsub" {
			return number(r.Params["consumer_groups"])
		}
	}
	return 0
}

// maxCandidates is the number of rows of a result, the fastest ones, that a load is tried on.
const maxCandidates = 6

// candidates returns the rows with a rate from valid results. Of a ceiling only
// the knee counts.
func candidates(files []File) (all []candidate) {
	several := slices.ContainsFunc(files, func(f File) bool { return f.Scenario != files[0].Scenario })
	for _, f := range files {
		if !f.Valid {
			continue
		}
		var own []candidate
		for _, row := range heldRows(f.Result) {
			c, ok := candidateOf(f.Result, row)
			if !ok || row.Name == "raw COPY" { // PostgreSQL alone
				continue
			}
			if c.Name = labelOf(files, f, row.Name); several && c.Name == row.Name {
				c.Name = f.Scenario + ": " + row.Name
			}
			own = append(own, c)
		}
		all = append(all, fastest(own)...)
	}
	return all
}

// fastest returns the fastest candidates, in their original order.
func fastest(all []candidate) []candidate {
	rates := make([]float64, len(all))
	for i, c := range all {
		rates[i] = c.rate()
	}
	slices.Sort(rates)
	if len(rates) <= maxCandidates {
		return all
	}
	least := rates[len(rates)-maxCandidates]
	return slices.DeleteFunc(all, func(c candidate) bool { return c.rate() < least })
}

func (c candidate) rate() float64 {
	return cmp.Or(c.Measured["measured_deliveries_per_second"], c.Measured["measured_messages_per_second"])
}

func candidateOf(r *bench.Result, row bench.Row) (candidate, bool) {
	c := candidate{Name: row.Name, Measured: make(map[string]float64), AtLeast: row.Limiter == bench.LimitRate}
	m := row.Metrics
	take := func(as string, names ...string) {
		for _, name := range names {
			if v := m[name]; v > 0 {
				c.Measured[as] = v
				return
			}
		}
	}
	take("measured_deliveries_per_second", "deliveries_per_second", "read_messages_per_second")
	if _, chat := m["deliveries_per_second"]; !chat { // a chat is delivered many times, so the chats sent matter little
		take("measured_messages_per_second", "messages_per_second", "events_per_second")
	}
	if len(c.Measured) == 0 {
		return candidate{}, false
	}
	switch {
	case m["table_bytes_per_message"] > 0:
		c.BytesKnown, c.Measured["is_stored"] = true, 1
		stored := m["table_bytes_per_message"] + m["index_bytes_per_message"]
		c.Measured["overhead_bytes"] = max(stored-number(r.Params["payload"]), 0)
	case strings.HasPrefix(r.Scenario, "chat-") || r.Scenario == "echo":
		c.BytesKnown, c.Measured["is_stored"] = true, 0 // nothing is stored
	default:
		c.Measured["is_stored"] = 1
	}
	return c, true
}
