package room

import (
	"slices"
	"sync"

	"github.com/tidewire/tidewire/websocket"
)

// segmentSize is the capacity of a shared segment, in bytes: some fifteen
// hundred small frames, and one write's worth under the heaviest load.
const segmentSize = 256 << 10

var segments = sync.Pool{New: func() any {
	b := make([]byte, 0, segmentSize)
	return &b
}}

// log holds the frames of a room that some member may not have received.
// Offsets count bytes from the room's first frame. Not safe for concurrent use.
type log struct {
	segs []segment
	head int64  // offset after the last frame
	all  uint64 // frames ever
	// ends are the end offsets of the frames in segs: the number of frames
	// between two offsets is the difference of their indexes here.
	ends []int64
	// gaps are the frames in segs that stand for messages of other nodes which are lost. A reader that skips such a
	// frame has missed all of these.
	gaps []gap
}

// gap is a notice: its frame's end offset, and the number of messages that are lost.
type gap struct {
	end    int64
	missed int
}

type segment struct {
	start int64
	buf   *[]byte
}

// append adds the frame of one message and returns its offset.
func (l *log) append(frame []byte) (start int64) {
	n := len(l.segs)
	if n == 0 || cap(*l.segs[n-1].buf)-len(*l.segs[n-1].buf) < len(frame) {
		l.segs = append(l.segs, segment{l.head, newSegment(len(frame))})
		n++
	}
	buf := l.segs[n-1].buf
	*buf = append(*buf, frame...)
	start = l.head
	l.head += int64(len(frame))
	l.all++
	l.ends = append(l.ends, l.head)
	return start
}

// appendAll adds several whole frames.
func (l *log) appendAll(frames []byte) {
	for len(frames) > 0 {
		h, size, err := websocket.ParseHeader(frames)
		if err != nil || size == 0 || len(frames) < size+int(h.Length) {
			return
		}
		l.append(frames[:size+int(h.Length)])
		frames = frames[size+int(h.Length):]
	}
}

func newSegment(size int) *[]byte {
	if size > segmentSize {
		b := make([]byte, 0, size)
		return &b
	}
	return segments.Get().(*[]byte)
}

// at returns the bytes from offset to the end of their segment or of the log.
// They do not change until release has passed them.
func (l *log) at(offset int64) []byte {
	for _, s := range l.segs {
		if end := s.start + int64(len(*s.buf)); offset < end {
			return (*s.buf)[offset-s.start:]
		}
	}
	return nil
}

// appendGap adds the frame of a notice that messages of another node are lost.
func (l *log) appendGap(frame []byte, missed int) {
	l.append(frame)
	l.gaps = append(l.gaps, gap{l.head, missed})
}

// between returns how many messages end in the bytes after a, up to b.
func (l *log) between(a, b int64) int {
	from, found := slices.BinarySearch(l.ends, a)
	if found {
		from++
	}
	to, found := slices.BinarySearch(l.ends, b)
	if found {
		to++
	}
	n := to - from
	for _, g := range l.gaps {
		if g.end > a && g.end <= b {
			n += g.missed - 1
		}
	}
	return n
}

// release returns the segments that end at or before offset to the pool.
func (l *log) release(offset int64) {
	kept := 0
	for kept < len(l.segs) && l.segs[kept].start+int64(len(*l.segs[kept].buf)) <= offset {
		if buf := l.segs[kept].buf; cap(*buf) == segmentSize {
			*buf = (*buf)[:0]
			segments.Put(buf)
		}
		kept++
	}
	if kept == 0 {
		return
	}
	start := offset
	if kept < len(l.segs) {
		start = l.segs[kept].start
	}
	l.segs = slices.Delete(l.segs, 0, kept)
	from, found := slices.BinarySearch(l.ends, start)
	if found {
		from++
	}
	l.ends = slices.Delete(l.ends, 0, from)
	l.gaps = slices.DeleteFunc(l.gaps, func(g gap) bool { return g.end <= start })
}
