package postgres

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidewire/tidewire/internal/testkit"
)

// TestOutageLog: of a thousand failures while PostgreSQL is away, the log has one line,
// and one when it is back. Failures with another cause, and all errors, are logged as
// usual.
func TestOutageLog(t *testing.T) {
	t.Parallel()
	var out testkit.Log
	probes := make(chan error)
	log, o := newOutageLog(slog.New(slog.NewTextHandler(&out, nil)), func(ctx context.Context) error {
		select {
		case err := <-probes:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	lost := io.ErrUnexpectedEOF
	refused := &pgconn.PgError{Code: "57P03"}
	for outage := 1; outage <= 2; outage++ {
		log.Warn("batch not written", "error", lost)
		probes <- refused
		for range 1000 {
			log.With("stream", "s").Warn("batch not written", "error", lost)
			log.WithGroup("g").Warn("not read", "error", refused)
		}
		log.Warn("too large", "error", errors.New("another cause"))
		log.Error("messages given up", "error", lost)
		log.Info("stopping")
		probes <- nil
		testkit.Eventually(t, "the end of the outage is logged", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return !o.probing
		})
		for text, want := range map[string]int{
			"batch not written": outage, "not read": 0, "does not answer": outage, "answers again": outage,
			"warnings_left_out=2000": outage, "too large": outage, "given up": outage, "msg=stopping": outage,
		} {
			if n := out.Count(text); n != want {
				t.Errorf("outage %d: %q %d times, want %d", outage, text, n, want)
			}
		}
	}
	log.Warn("one connection was ended", "error", lost)
	probes <- nil // PostgreSQL answers: there is no outage to log
	o.end()
	if n := out.Count("does not answer"); n != 2 {
		t.Errorf("%d outages told, want 2", n)
	}
}
