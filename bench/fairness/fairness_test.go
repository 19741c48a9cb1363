package fairness_test

import (
	"flag"
	"fmt"
	"net/url"
	"os"
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
	if *results != "" {
		if err := os.WriteFile(*results, []byte(tableHead), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, v := range variants {
		var f *field // of both calls of the variant: the first, of one append, opens and prepares
		b.Run(v.name, func(b *testing.B) {
			if f == nil {
				var err error
				if f, err = newField(b.Context(), freshDatabase(b, server.URL(), v.name), serverConnections, asMeasured); err != nil {
					b.Fatal(err)
				}
			}
			measure(b, f, v)
		})
		if f == nil {
			continue
		}
		if err := f.close(); err != nil {
			b.Errorf("%s: %v", v.name, err)
		}
	}
}

// measure is one call of a variant: each target gets b.N appends.
func measure(b *testing.B, f *field, v variant) {
	b.ResetTimer()
	flooded, err := f.run(b.Context(), v, b.N, *every)
	if err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	s := summarise(f.targets)
	for unit, value := range s.metrics() {
		b.ReportMetric(value, unit)
	}
	b.ReportMetric(0, "ns/op") // it is the interval
	if v.flood {
		b.ReportMetric(float64(flooded)/b.Elapsed().Seconds(), "flood/s")
		b.ReportMetric(milliseconds(s.medianOf(f.special(v).name)), "flooded-median-ms")
	}
	if b.N == 1 || *results == "" {
		return
	}
	file, err := os.OpenFile(*results, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := s.write(file, v.name); err != nil {
		b.Fatal(err)
	}
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
