package serve

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
)

// TestLogEvictions: the log has the number of ended connections and the limit; a
// server with enough memory logs nothing.
func TestLogEvictions(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	for evictions, want := range []string{"", "ended=1 limit_bytes=1048576"} {
		if evictions > 0 {
			ended := make(chan struct{})
			h := b.Open(func() { close(ended) })
			defer h.Close()
			h.Take(budget.Output, 2<<20)
			<-ended
		}
		var out strings.Builder
		done := make(chan struct{})
		close(done)
		logEvictions(b, slog.New(slog.NewTextHandler(&out, nil)), time.Hour, done)
		if got := out.String(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("after %d evictions: %q, want %q", evictions, got, want)
		}
	}
}
