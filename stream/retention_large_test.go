package stream_test

import (
	"testing"

	"github.com/tidewire/tidewire/stream"
)

// TestRetentionWorker_LargeFirstSegment: the messages from before the policy are one segment, larger
// than MaxBytes. It stays until enough was written after it.
func TestRetentionWorker_LargeFirstSegment(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := ensureWith(t, db.Pool, "large", stream.Options{OwnTables: true})
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for range 20 {
		mustAppend(t, a, kilobytes(100)...)
	}
	const maxBytes = 1 << 20
	alter(t, db.Pool, s, stream.Retention{MaxBytes: maxBytes})
	pool, steps := countingPool(t, db.URL, "tidewire.retention")
	keep(t, pool)
	waitRounds(steps, 3)
	if info := inspect(t, s); info.Oldest != 1 || info.Bytes < maxBytes {
		t.Errorf("%+v: all was dropped, want at least half of %d bytes kept", info, maxBytes)
	}
	for range 20 {
		mustAppend(t, a, kilobytes(100)...)
		waitRounds(steps, 2)
	}
	if info := waitInfo(t, s, "not dropped", func(i stream.Info) bool { return i.Oldest > 2000 && i.Bytes <= maxBytes }); info.Bytes < maxBytes/2 {
		t.Errorf("%+v: want at least half of %d bytes kept", info, maxBytes)
	}
}
