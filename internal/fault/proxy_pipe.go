package fault

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	chunkSize = 32 << 10 // bytes of one read
	// maxOverdue is how many bytes a pipe holds whose delay is over. More are read only while the oldest is still delayed: so a delay bounds no
	// throughput, and a receiver that does not read stops the sender.
	maxOverdue = 4 * chunkSize
)

// pipe is one direction of a link: a queue between a goroutine that reads one connection and one that writes the other.
type pipe struct {
	link      *link
	direction Direction
	readable  chan struct{} // has an item if the reading goroutine has to look again
	writable  chan struct{} // the same for the writing goroutine

	// Guarded by proxy.mu:
	queue  []item
	queued int // bytes in queue
	// finSent is set before FIN is sent to the receiver, so that wasReset takes no end after it for a reset.
	finSent bool
}

// item is what a side has sent, with the time at which it is passed on.
type item struct {
	due  time.Time
	end  end
	data []byte // if end is none
}

type end int

const (
	none      end = iota
	halfClose     // FIN
	reset         // RST
)

func newPipe(l *link, d Direction) *pipe {
	return &pipe{link: l, direction: d, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// read queues what a connection sends, until its end or the link's.
func (p *pipe) read(from *net.TCPConn) {
	for p.awaitRoom() {
		data := make([]byte, chunkSize)
		n, err := from.Read(data)
		if n > 0 {
			p.put(item{data: data[:n]})
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && !p.wasReset(from):
			p.put(item{end: halfClose})
			return
		default:
			p.put(item{end: reset})
			return
		}
	}
}

// wasReset reports whether a connection whose end was read was reset. The kernel reports a reset to one call only: if that was the other direction's
// write, a read gets an end as after FIN. But then the connection is closed and has no peer, which is otherwise so only after a FIN of each side.
func (p *pipe) wasReset(from *net.TCPConn) bool {
	raw, err := from.SyscallConn()
	if err != nil {
		return false
	}
	var noPeer error
	if err := raw.Control(func(fd uintptr) { _, noPeer = syscall.Getpeername(int(fd)) }); err != nil || noPeer == nil {
		return false
	}
	proxy := p.link.proxy
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	return !p.link.pipes[1-p.direction].finSent
}

// awaitRoom waits until the pipe is not stalled and has room. It returns false if the link has ended.
func (p *pipe) awaitRoom() bool {
	for !p.room() {
		select {
		case <-p.readable:
		case <-p.link.ctx.Done():
			return false
		}
	}
	return true
}

func (p *pipe) room() bool {
	proxy := p.link.proxy
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	return !proxy.stalled[p.direction] && (p.queued < maxOverdue || time.Now().Before(p.queue[0].due))
}

func (p *pipe) put(i item) {
	proxy := p.link.proxy
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	i.due = time.Now().Add(proxy.delay)
	p.queue = append(p.queue, i)
	p.queued += len(i.data)
	notify(p.writable)
}

// write passes on what is queued, until the link's end. It does not return at a half-close: a reset may follow.
func (p *pipe) write(to *net.TCPConn) {
	for {
		i, ok := p.next()
		if !ok {
			return
		}
		switch i.end {
		case none:
			if _, err := to.Write(i.data); err != nil {
				// The receiver has reset its connection, and the sender has to learn it the other way round, where it may be stalled or delayed.
				p.link.pipes[1-p.direction].put(item{end: reset})
			}
		case halfClose:
			p.setFinSent()
			to.CloseWrite() // fails if the receiver has reset its connection; the other direction's reading goroutine sees that, too
			p.link.countHalfClose()
		case reset:
			p.link.end(true)
		}
		p.remove()
	}
}

func (p *pipe) setFinSent() {
	proxy := p.link.proxy
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	p.finSent = true
}

// next waits for the first item, which stays in the queue. It returns false if the link has ended.
func (p *pipe) next() (item, bool) {
	for {
		i, wait, ok := p.first()
		if ok && wait <= 0 {
			return i, true
		}
		var due <-chan time.Time
		if ok {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-p.writable:
		case <-p.link.ctx.Done():
			return item{}, false
		}
	}
}

// first returns the first item and how long it has to wait, or false if there is none or the pipe is stalled.
func (p *pipe) first() (item, time.Duration, bool) {
	proxy := p.link.proxy
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(p.queue) == 0 || proxy.stalled[p.direction] || p.link.over {
		return item{}, 0, false
	}
	return p.queue[0], time.Until(p.queue[0].due), true
}

// remove removes the first item, after it was passed on.
func (p *pipe) remove() {
	proxy := p.link.proxy
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	p.queued -= len(p.queue[0].data)
	p.queue[0] = item{}
	p.queue = p.queue[1:]
	notify(p.readable)
}
