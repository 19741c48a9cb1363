package scenario

import (
	"testing"
)

// TestQueueLoad_Target: each stream has one writer, whose calls go to all its streams
// in turn; a single stream has all writers.
func TestQueueLoad_Target(t *testing.T) {
	t.Parallel()
	for _, l := range []QueueLoad{{Writers: 3, Streams: 3}, {Writers: 3, Streams: 10}, {Writers: 7, Streams: 100}} {
		writers := make(map[int]int)
		calls := make(map[int]int)
		for w := range l.Writers {
			for n := range 200 {
				stream, origin := l.target(w, n)
				if origin != stream || stream < 0 || stream >= l.Streams {
					t.Fatalf("%+v: stream %d, origin %d", l, stream, origin)
				}
				if other, ok := writers[stream]; ok && other != w {
					t.Fatalf("%+v: stream %d has writers %d and %d", l, stream, other, w)
				}
				writers[stream] = w
				calls[stream]++
			}
		}
		if len(calls) != l.Streams || l.origins() != l.Streams {
			t.Errorf("%+v: %d streams are written to, of %d origins", l, len(calls), l.origins())
		}
		for s, n := range calls {
			if most := 200/(l.Streams/l.Writers) + 1; n > most {
				t.Errorf("%+v: stream %d has %d calls, want at most %d", l, s, n, most)
			}
		}
	}
	one := QueueLoad{Writers: 3, Streams: 1}
	if stream, origin := one.target(2, 5); stream != 0 || origin != 2 || one.origins() != 3 {
		t.Errorf("stream %d, origin %d, of %d", stream, origin, one.origins())
	}
}

// TestQueueLoad_StreamOf: each stream has a reader in each group.
func TestQueueLoad_StreamOf(t *testing.T) {
	t.Parallel()
	l := QueueLoad{Mode: "pubsub", Strategy: "log", Streams: 5, Groups: 3}
	seen := make(map[[2]int]bool)
	for n := range l.sources() {
		seen[[2]int{l.streamOf(n), n % l.groups()}] = true
	}
	if len(seen) != 15 {
		t.Errorf("%d pairs of stream and group, want 15", len(seen))
	}
}
