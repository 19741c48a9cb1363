package stream

import (
	"cmp"
	"slices"
	"time"
)

const (
	// earlyWait is for how long a page waits for the pages before it, of other processes. When several processes
	// write, they get each other's pages a little later than they commit the next.
	earlyWait = 10 * time.Millisecond
	// maxEarly is how many pages wait at most, for each stream. Their memory is bounded by TailBytes as well.
	maxEarly = 64
)

// earlyPages are pages that do not follow on the tail, because pages before them are missing.
type earlyPages struct {
	pages   []tailPage // in the order of positions
	bytes   int
	waiting *time.Timer // runs while there are pages
}

// keepEarly lets a page wait for those before it, and reports false if it can't.
func (f *feed) keepEarly(p tailPage) bool {
	e := &f.early
	if f.cfg.Peers == nil || len(e.pages) == maxEarly || e.bytes+p.bytes > f.cfg.TailBytes {
		return false
	}
	at, repeated := slices.BinarySearchFunc(e.pages, p.first(), func(known tailPage, first int64) int { return cmp.Compare(known.first(), first) })
	if repeated {
		return true
	}
	e.pages = slices.Insert(e.pages, at, p)
	e.bytes += p.bytes
	f.told = max(f.told, p.last())
	if e.waiting == nil {
		e.waiting = time.AfterFunc(earlyWait, f.endEarly)
	}
	return true
}

// joinEarly adds those pages to the tail that follow on it now.
func (f *feed) joinEarly() {
	e := &f.early
	for len(e.pages) > 0 && e.pages[0].first()-1 <= f.end() {
		p := e.pages[0]
		e.pages, e.bytes = slices.Delete(e.pages, 0, 1), e.bytes-p.bytes
		f.join(p)
	}
	if len(e.pages) == 0 {
		f.dropEarly()
	}
}

// endEarly ends the wait: what is missing has to be read from PostgreSQL.
func (f *feed) endEarly() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.early.pages) > 0 {
		f.dropEarly()
		f.holes.Add(1)
		f.hintLocked()
	}
}

// dropEarly forgets the pages that wait.
func (f *feed) dropEarly() {
	if f.early.waiting != nil {
		f.early.waiting.Stop()
	}
	f.early = earlyPages{}
}
