package scenario

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
	"github.com/tidewire/tidewire/stream"
)

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
