package fault

import "sync"

// tailSize is how many bytes of a child's output are kept.
const tailSize = 64 << 10

// tail is a writer that keeps the last tailSize bytes. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte // up to twice tailSize, so that bytes are moved once for each tailSize written
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if n > tailSize {
		p = p[n-tailSize:]
	}
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailSize {
		t.buf = t.buf[:copy(t.buf, t.buf[len(t.buf)-tailSize:])]
	}
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf[max(0, len(t.buf)-tailSize):])
}
