package stream_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

func TestSubscribe_Starts(t *testing.T) {
	t.Parallel()
	db, s := ensureOwn(t)
	h := stream.NewHub(db.Pool, stream.HubConfig{})
	// Position p has the time of second p, except some that waited for the lock;
	// one in ten is missing.
	exec(t, db.Pool, `
SELECT tidewire.take_positions(1000, 'tidewire.stream_1000_position_seq', 50000, 1, 1);
INSERT INTO tidewire.stream_1000 (position, created_at, payload)
SELECT p, '2026-01-01T00:00:00Z'::timestamptz + p * interval '1 s' - CASE WHEN p % 7 = 0 THEN interval '40 s' ELSE '0' END, ''
FROM generate_series(1, 50000) AS p WHERE p % 10 <> 3`)
	second := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	for name, c := range map[string]struct {
		start stream.Start
		first int64
	}{
		"zero":            {stream.Start{}, 1},
		"beginning":       {stream.After(0), 1},
		"after":           {stream.After(2), 4},
		"long ago":        {stream.AtTime(time.Time{}), 1},
		"first":           {stream.AtTime(second(1)), 1},
		"in a gap":        {stream.AtTime(second(23)), 24},
		"early":           {stream.AtTime(second(28)), 29}, // 28 began 40 s before
		"middle":          {stream.AtTime(second(25001)), 25001},
		"between":         {stream.AtTime(second(25001).Add(time.Millisecond)), 25002},
		"last":            {stream.AtTime(second(50000)), 50000},
		"nothing so late": {stream.AtTime(second(50001)), 50001},
		"end":             {stream.AtEnd(), 50001},
		"not yet":         {stream.After(50000), 50001},
		"after a missing": {stream.After(12), 14},
	} {
		sub, err := h.Subscribe(t.Context(), s, c.start)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if c.first > 50000 {
			if sub.Position() != 50000 {
				t.Errorf("%s: begins after %d, want 50000", name, sub.Position())
			}
			continue
		}
		if page := next(t, sub); page[0].Position != c.first {
			t.Errorf("%s: begins with %d, want %d", name, page[0].Position, c.first)
		}
	}
	if _, err := h.Subscribe(t.Context(), s, stream.After(-1)); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("After(-1): %v, want ErrInvalid", err)
	}
}
