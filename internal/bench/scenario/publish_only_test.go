package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

// shelf is a side with two streams, each with one message for each position.
type shelf struct {
	positions [2][]int64
	ends      [2]storedEnd
	err       error
}

func (s shelf) count() int { return len(s.positions) }

func (s shelf) read(_ context.Context, n int, each func(int64, []byte)) (storedEnd, error) {
	for seq, position := range s.positions[n] {
		each(position, bench.AppendStamped(nil, n, seq, time.Time{}, 64))
	}
	return s.ends[n], s.err
}

// TestReadBack_Positions: heads and positions must agree with the stored messages.
func TestReadBack_Positions(t *testing.T) {
	t.Parallel()
	dense := storedEnd{head: 3, dense: true}
	for name, c := range map[string]struct {
		first  []int64
		end    storedEnd
		failed string // part of the check's name
	}{
		"as promised":              {[]int64{1, 2, 3}, dense, ""},
		"holes":                    {[]int64{1, 3, 5}, storedEnd{head: 5, dense: true}, "no holes"},
		"holes that may be":        {[]int64{1, 3, 5}, storedEnd{head: 5}, ""},
		"a head too far":           {[]int64{1, 2, 3}, storedEnd{head: 4}, "every head"},
		"a head that lags":         {[]int64{1, 2, 3}, storedEnd{head: 2}, "every head"},
		"positions that fall":      {[]int64{2, 1, 3}, dense, "every head"},
		"one position for two":     {[]int64{1, 3, 3}, dense, "every head"},
		"one message less than 3":  {[]int64{1, 2}, storedEnd{head: 2, dense: true}, "stored once"},
		"one message more than 3":  {[]int64{1, 2, 3, 4}, storedEnd{head: 4, dense: true}, "stored once"},
		"nothing, and its head is": {nil, storedEnd{dense: true}, "stored once"},
	} {
		result := bench.NewResult("pubsub", nil)
		r := &queueRun{cfg: QueueConfig{
			QueueLoad: QueueLoad{Mode: "pubsub", Strategy: "log", Writers: 2, Streams: 2, Payload: 64, InFlight: 1}, Progress: t.Logf,
		}, result: result, row: "log"}
		s, err := r.readBack(t.Context(), shelf{positions: [2][]int64{c.first, {1, 2, 3}}, ends: [2]storedEnd{c.end, dense}}, []int{3, 3})
		if err != nil {
			t.Fatal(err)
		}
		r.checkStock(s)
		var failed []string
		for _, check := range result.Checks {
			if !check.OK {
				failed = append(failed, check.Name)
			}
		}
		if c.failed == "" && len(failed) > 0 || c.failed != "" && (len(failed) != 1 || !strings.Contains(failed[0], c.failed)) {
			t.Errorf("%s: failed %q, want %q", name, failed, c.failed)
		}
		if len(result.Checks) != 4 {
			t.Errorf("%s: %d checks, want 4: %+v", name, len(result.Checks), result.Checks)
		}
	}
}

// TestLogStored reads streams with a shared table and with separate tables, over
// several pages.
func TestLogStored(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	load := QueueLoad{Mode: "pubsub", Strategy: "log", Streams: 2, Writers: 2}
	if err := pubsubLog.prepare(t.Context(), db.Pool, load); err != nil {
		t.Fatal(err)
	}
	w, err := newLogWriter(t.Context(), db.Pool, load)
	if err != nil {
		t.Fatal(err)
	}
	counts := []int{3, storedMessages + 5} // this many messages at once make the second stream get its own tables
	for n, count := range counts {
		var payloads [][]byte
		for i := range count {
			payloads = append(payloads, fmt.Append(nil, i))
		}
		done := make(chan error, 1)
		if err := w.send(t.Context(), 0, n, payloads, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	w.close()
	side, err := pubsubLog.stored(t.Context(), db.Pool, load)
	if err != nil || side.count() != 2 {
		t.Fatal(side, err)
	}
	for n, count := range counts {
		var got []string
		last := int64(0)
		end, err := side.read(t.Context(), n, func(position int64, payload []byte) {
			got, last = append(got, string(payload)), position
		})
		if err != nil || len(got) != count || got[count-1] != fmt.Sprint(count-1) || end.head != last {
			t.Errorf("stream %d: %d messages up to %d, %+v, %v", n, len(got), last, end, err)
		}
		if end.dense != (n == 0) {
			t.Errorf("stream %d: dense is %t", n, end.dense)
		}
	}
	if _, err := lookupStreams(t.Context(), db.Pool, QueueLoad{Streams: 3}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("a stream that is not there: %v", err)
	}
}
