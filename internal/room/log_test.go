package room

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestLog_AgainstOneLongSlice compares the log with a slice of everything. Some frames are notices of lost messages.
func TestLog_AgainstOneLongSlice(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 9))
	var l log
	var all []byte
	var ends []int64
	var messages []int // of each frame
	released := int64(0)
	for i := range 20_000 {
		frame := bytes.Repeat([]byte{byte(i)}, 1+random.IntN(300))
		if i%5000 == 4999 {
			frame = make([]byte, segmentSize+1)
		}
		missed := 1
		if random.IntN(50) == 0 {
			missed = 1 + random.IntN(1000)
			l.appendGap(frame, missed)
		} else if start := l.append(frame); start != int64(len(all)) {
			t.Fatalf("frame %d begins at %d, want %d", i, start, len(all))
		}
		all = append(all, frame...)
		ends = append(ends, int64(len(all)))
		messages = append(messages, missed)
		if i%100 != 0 {
			continue
		}
		a := released + random.Int64N(int64(len(all))-released+1)
		var got []byte
		for at := a; at < l.head; {
			part := l.at(at)
			got = append(got, part...)
			at += int64(len(part))
		}
		if !bytes.Equal(got, all[a:]) {
			t.Fatalf("from %d: %d bytes differ from the %d appended", a, len(got), len(all[a:]))
		}
		want := 0
		for i, e := range ends {
			if e > a {
				want += messages[i]
			}
		}
		if got := l.between(a, l.head); got != want {
			t.Fatalf("%d messages after %d, want %d", got, a, want)
		}
		if random.IntN(3) == 0 {
			released = a
			l.release(released)
			if len(l.segs) > 0 && l.segs[0].start > released {
				t.Fatalf("released %d, the log begins at %d", released, l.segs[0].start)
			}
		}
	}
	l.release(l.head)
	if len(l.segs) != 0 || len(l.ends) != 0 || len(l.gaps) != 0 {
		t.Errorf("%d segments, %d ends and %d gaps are left of a log that everybody has seen", len(l.segs), len(l.ends), len(l.gaps))
	}
}
