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

// Text is the value as a field of the page has it.
func (in input) Text() string { return strconv.FormatFloat(in.Value, 'f', -1, 64) }

// formula computes one number from the inputs, the measured numbers, and earlier
// formulas. The page shows the expression. Go and the page's script evaluate what
// Go has parsed of it: there is no second copy that could differ.
type formula struct{ Name, Expression, Meaning string }

// loadKind says what a load consists of in a scenario: what is asked, and what is computed.
type loadKind struct {
	Message string // what a message is called
	// sender is the one who sends them, if their number is asked instead of that of all messages.
	sender string
	// receivers are those who get each message; "" if one does.
	receivers string
	Stored    bool // on disk
}

// loadKinds are the scenarios whose rates are those of an application's load, by the beginning of
// their names.
var loadKinds = []struct {
	scenario string
	loadKind
}{
	{"ingest", loadKind{Message: "message", sender: "sender", Stored: true}},
	{"queue", loadKind{Message: "job", Stored: true}},
	{"pubsub", loadKind{Message: "message", receivers: "groups that read each message", Stored: true}},
	{"events", loadKind{Message: "event", Stored: true}},
	{"chat-", loadKind{Message: "chat", sender: "user", receivers: "receivers of a chat"}},
	{"echo", loadKind{Message: "request", sender: "client"}},
}

// kindOf returns nil for a scenario without a load.
func kindOf(scenario string) *loadKind {
	for _, k := range loadKinds {
		if strings.HasPrefix(scenario, k.scenario) {
			return &k.loadKind
		}
	}
	return nil
}

func (k *loadKind) formulas() (all []formula) {
	add := func(name, expression, meaning string) { all = append(all, formula{name, expression, meaning}) }
	if k.sender != "" {
		add("messages_per_day", "senders * messages_per_sender_per_day", k.Message+"s a day")
	}
	add("peak_messages_per_second", "messages_per_day / 86400 * peak_factor", "needed at the peak, "+k.Message+"s/s")
	if k.receivers == "" {
		add("headroom", "measured_messages_per_second / peak_messages_per_second", "measured rate divided by the needed rate")
	} else {
		add("peak_deliveries_per_second", "peak_messages_per_second * fan_out", "needed at the peak, deliveries/s")
		add("headroom", "min(measured_messages_per_second / peak_messages_per_second, measured_deliveries_per_second / peak_deliveries_per_second)",
			"measured rate divided by the needed rate; a rate that was not measured does not limit")
	}
	if k.Stored {
		add("stored_bytes", "bytes + overhead_bytes", "bytes of a "+k.Message+" on disk, including indexes, without the write-ahead log, which PostgreSQL recycles")
		add("gb_per_day", "messages_per_day * stored_bytes / 1e9", "growth a day, GB")
		add("disk_needed_gb", "gb_per_day * retention_days", "disk space that the retention needs, GB")
		add("days_until_full", "disk_gb / gb_per_day", "days until the disk is full, if the retention needs more than the disk has")
		add("cost_per_year", "price_per_year + 12 * disk_needed_gb * price_per_gb_month", "cost a year, in the currency of the prices")
	} else {
		add("cost_per_year", "price_per_year", "cost a year, in the currency of the price")
	}
	add("cost_per_million", "cost_per_year / (messages_per_day * 365) * 1e6", "cost of a million "+k.Message+"s")
	return all
}

// inputs describes a mid-sized application.
func (k *loadKind) inputs() (all []input) {
	add := func(name, label, unit string, value float64) { all = append(all, input{name, label, unit, value}) }
	if k.sender == "" {
		add("messages_per_day", k.Message+"s", "a day", 1_000_000)
	} else {
		add("senders", k.sender+"s", "", 10_000)
		add("messages_per_sender_per_day", k.Message+"s of a "+k.sender, "a day", 100)
	}
	add("peak_factor", "peak factor", "× the mean rate", 5)
	if k.receivers != "" {
		add("fan_out", k.receivers, "", 1)
	}
	if k.Stored {
		add("bytes", "size of a "+k.Message, "bytes", 1024)
		add("retention_days", "kept for", "days", 30)
		add("disk_gb", "disk", "GB", 100)
	}
	add("price_per_year", "price of the machine", "a year", 0)
	if k.Stored {
		add("price_per_gb_month", "price of the disk", "per GB and month", 0)
	}
	return all
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
func answer(formulas []formula, inputs []input, c candidate) (answers, error) {
	known := answers{"measured_messages_per_second": math.Inf(1), "measured_deliveries_per_second": math.Inf(1), "overhead_bytes": 0}
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

// tree is an expression as the page's script takes it: a number, a name, or an array of an operator
// and its operands.
func tree(e ast.Expr) any {
	switch e := e.(type) {
	case *ast.BasicLit:
		return json.Number(e.Value)
	case *ast.ParenExpr:
		return tree(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.CallExpr:
		all := []any{"min"}
		for _, arg := range e.Args {
			all = append(all, tree(arg))
		}
		return all
	case *ast.BinaryExpr:
		return []any{e.Op.String(), tree(e.X), tree(e.Y)}
	}
	panic(fmt.Sprintf("%T is not part of a formula", e)) // evaluate has refused it
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

// inputsFor returns the inputs with payload, retention and prices from the parameters of the results.
func inputsFor(k *loadKind, files []File) []input {
	in := k.inputs()
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
	for _, f := range files {
		if !f.Valid {
			continue
		}
		var own []candidate
		for _, row := range heldRows(f.Result) {
			c, ok := candidateOf(f.Result, row)
			if !ok || row.Name == "raw COPY" || readsEvents(f.Scenario, row.Name) { // raw COPY is PostgreSQL alone
				continue
			}
			c.Name = labelOf(files, f, row.Name)
			own = append(own, c)
		}
		all = append(all, fastest(own)...)
	}
	return all
}

// readsEvents reports whether a row of events measured another operation than appends.
func readsEvents(scenario, row string) bool {
	return scenario == "events" && !strings.HasPrefix(row, "append")
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
	if m["table_bytes_per_message"] > 0 {
		stored := m["table_bytes_per_message"] + m["index_bytes_per_message"]
		c.BytesKnown, c.Measured["overhead_bytes"] = true, max(stored-number(r.Params["payload"]), 0)
	}
	return c, true
}
