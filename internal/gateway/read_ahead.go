package gateway

import (
	"context"
	"time"
)

// aheadFrom is the size in bytes from which a page is large enough for the next one to be read ahead:
// below it, a goroutine costs more than it saves.
const aheadFrom = 64 << 10

// pageReader reads the pages of a feed for one subscriber. While a page is sent, it reads the next one: in a
// catch-up PostgreSQL and the connection then work at the same time. It does so only if the connection was
// faster than the feed with the last page: a slow peer costs the memory of one page, as before. Pages are read
// one after another. It is used by one goroutine.
type pageReader struct {
	sub    *subscriber
	from   feed
	ctx    context.Context
	cancel context.CancelFunc
	ahead  chan pageRead // gets the page that is read ahead; nil if none is
	reads  time.Duration // what the last read took
	sends  time.Duration // what the last page took to send
}

// pageRead is the result of a read.
type pageRead struct {
	page  page
	err   error
	reads time.Duration
}

func newPageReader(sub *subscriber, from feed) *pageReader {
	r := &pageReader{sub: sub, from: from}
	r.ctx, r.cancel = context.WithCancel(sub.ctx)
	return r
}

// next returns the next page. It takes credit first, so that it holds no page while it has none.
func (r *pageReader) next() (page, error) {
	var got pageRead
	if r.ahead != nil {
		got = <-r.ahead
		r.ahead = nil
	} else {
		most, err := r.sub.credits.take(r.ctx, maxBatch)
		if err != nil {
			return page{}, err
		}
		got = r.read(most)
	}
	r.reads = got.reads
	return got.page, got.err
}

// read reads a page for which there is credit.
func (r *pageReader) read(most int) pageRead {
	if err := r.sub.session.conn.admit(r.ctx); err != nil {
		return pageRead{err: err}
	}
	began := time.Now()
	p, err := r.from.next(r.ctx, most)
	if err != nil {
		return pageRead{err: err}
	}
	r.sub.credits.giveBack(most - p.size)
	return pageRead{page: p, reads: time.Since(began)}
}

// send sends a page, and meanwhile reads the next one if that may gain time.
func (r *pageReader) send(p *page) error {
	if p.bytes >= aheadFrom && r.reads >= r.sends {
		r.start()
	}
	began := time.Now()
	err := r.sub.send(p)
	r.sends = time.Since(began)
	return err
}

// start reads the next page in another goroutine, if there is credit.
func (r *pageReader) start() {
	most := r.sub.credits.some(maxBatch)
	if most == 0 {
		return
	}
	ahead := make(chan pageRead, 1)
	r.ahead = ahead
	go func() {
		var got pageRead
		err := r.sub.session.conn.try(func() error { got = r.read(most); return nil })
		if err != nil { // a panic
			got.err = err
		}
		ahead <- got
	}()
}

// stop ends a read that is under way, and waits for its end.
func (r *pageReader) stop() {
	r.cancel()
	if r.ahead != nil {
		<-r.ahead
	}
}
