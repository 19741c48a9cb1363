package stream_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tidewire/tidewire/internal/pg"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/migrate"
	"github.com/tidewire/tidewire/stream"
)

// BenchmarkWriter writes batches of 100-byte rows with both methods, on a
// PostgreSQL with fsync: where they cross is the default of
// WriterConfig.CopyRows.
func BenchmarkWriter(b *testing.B) {
	server := pgtest.Start(b)
	pool, err := pg.Open(b.Context(), pg.PoolConfig{URL: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	if _, err := migrate.Up(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), 100)
	for _, rows := range []int{1, 10, 100, 200, 400, 1000, 5000, 50_000} {
		for name, method := range map[string]stream.Method{"array": stream.Array, "copy": stream.Copy} {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) {
				w := stream.NewWriter(pool, stream.WriterConfig{Method: method})
				defer w.Close()
				var batch stream.Batch
				for range rows {
					batch.Append(payload)
				}
				for b.Loop() {
					if err := w.Write(b.Context(), &batch); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}
