package fairness_test

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pgtest"
)

var (
	every   = flag.Duration("every", 500*time.Millisecond, "the time between two appends to a target")
	results = flag.String("targets", "", "a `file` that gets a line for each target of each variant")
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// asMeasured is what BenchmarkFairness opens.
var asMeasured = size{streams: 10, partitions: 100, stores: 100}

// serverConnections is the size of the pool of tidewire serve (internal/cli/serve.go): 24
// and its --workers, which are 4.
const serverConnections = 24 + 4

// BenchmarkFairness appends to 1,000 partitions and 100 event stores at once, on a PostgreSQL
// with fsync. With -benchtime 60x each target gets 60 appends.
func BenchmarkFairness(b *testing.B) {
	server := pgtest.Start(b)
	var lines strings.Builder
	for _, v := range variants {
		m := measurement{server: server.URL(), variant: v}
		if b.Run(v.name, m.measure); m.summary == nil { // it failed, or was not selected
			continue
		}
		if v.flood {
			b.Run(v.name+"/the-flooded-one", m.flooded)
		}
		if err := m.summary.write(&lines, v.name); err != nil {
			b.Fatal(err)
		}
		if err := m.field.close(); err != nil {
			b.Errorf("%s: %v", v.name, err)
		}
	}
	if *results != "" {
		if err := os.WriteFile(*results, []byte(tableHead+lines.String()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// openField opens what a variant measures. Each target gets one append that is not
// measured: it connects and prepares.
func openField(b *testing.B, server string, v variant) *field {
	b.Helper()
	f, err := newField(b.Context(), freshDatabase(b, server, v.name), serverConnections, asMeasured)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.run(b.Context(), variant{}, 1, *every); err != nil {
		b.Fatal(errors.Join(err, f.close()))
	}
	return f
}

// measurement is one variant, and the result of the last call of measure.
type measurement struct {
	server  string // its URL
	variant variant
	field   *field   // of all calls: the first opens it
	summary *summary // nil: there was no call
	flood   float64  // appends a second
}

// measure is a benchmark: each target gets b.N appends.
func (m *measurement) measure(b *testing.B) {
	if m.field == nil {
		m.field = openField(b, m.server, m.variant)
	}
	b.ResetTimer()
	answered, err := m.field.run(b.Context(), m.variant, b.N, *every)
	if err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	m.flood = float64(answered) / b.Elapsed().Seconds()
	s := summarise(m.field.targets, m.field.flooded(m.variant))
	m.summary = &s
	report(b, m.summary.metrics())
}

// flooded reports the flooded target in a separate line. It measures nothing.
func (m *measurement) flooded(b *testing.B) {
	report(b, m.summary.flooded.metrics())
	b.ReportMetric(m.flood, "flood/s")
}

func report(b *testing.B, metrics map[string]float64) {
	for unit, value := range metrics {
		b.ReportMetric(value, unit)
	}
	b.ReportMetric(0, "ns/op") // it is the interval
}

// freshDatabase makes a database on the server and returns its URL.
func freshDatabase(b *testing.B, server, name string) string {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), server)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	if _, err := conn.Exec(b.Context(), fmt.Sprintf("CREATE DATABASE %q", name)); err != nil {
		b.Fatal(err)
	}
	u, err := url.Parse(server)
	if err != nil {
		b.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}
