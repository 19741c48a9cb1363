package fault

import (
	"context"
	"net"
	"sync"
)

// link is one client's connection and that to the target.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	change chan struct{} // has an item if the proxy's state has changed, for dial
	ended  chan struct{} // closed when both connections are closed and all goroutines but run's have returned
	pipes  [2]*pipe      // by Direction

	// Guarded by proxy.mu:
	conns  []*net.TCPConn // those to close: the client's, and the target's if there is one
	over   bool           // the connections are closed
	closed int            // directions whose half-close has passed
}

func newLink(p *Proxy, client *net.TCPConn) *link {
	l := &link{proxy: p, client: client, change: make(chan struct{}, 1), ended: make(chan struct{}), conns: []*net.TCPConn{client}}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	for d := range l.pipes {
		l.pipes[d] = newPipe(l, Direction(d))
	}
	return l
}

// run connects to the target and copies both directions until the link ends.
func (l *link) run() {
	defer l.forget()
	target, ok := l.dial()
	if !ok {
		l.end(true)
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() { l.pipes[ToTarget].read(l.client) })
	copying.Go(func() { l.pipes[ToTarget].write(target) })
	copying.Go(func() { l.pipes[FromTarget].read(target) })
	copying.Go(func() { l.pipes[FromTarget].write(l.client) })
	copying.Wait()
}

func (l *link) forget() {
	l.cancel()
	l.proxy.mu.Lock()
	delete(l.proxy.links, l)
	l.proxy.mu.Unlock()
	close(l.ended)
}

// dial connects to the target as soon as that direction is not stalled. It returns false if there is no connection or the link has ended.
func (l *link) dial() (*net.TCPConn, bool) {
	for l.stalled(ToTarget) {
		select {
		case <-l.change:
		case <-l.ctx.Done():
			return nil, false
		}
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		return nil, false
	}
	target := conn.(*net.TCPConn)
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.over {
		closeConn(target, true)
		return nil, false
	}
	l.conns = append(l.conns, target)
	return target, true
}

func (l *link) stalled(d Direction) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	return l.proxy.stalled[d]
}

// wake lets all goroutines of the link look at the state again.
func (l *link) wake() {
	notify(l.change)
	for _, p := range l.pipes {
		notify(p.readable)
		notify(p.writable)
	}
}

// end closes both connections, by RST if reset is set. That ends all goroutines of the link.
func (l *link) end(reset bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.over = true
	for _, conn := range l.conns {
		closeConn(conn, reset)
	}
	l.conns = nil
	l.cancel()
}

// countHalfClose counts the directions whose half-close has passed, and ends the link after the second.
func (l *link) countHalfClose() {
	l.proxy.mu.Lock()
	l.closed++
	both := l.closed == len(l.pipes)
	l.proxy.mu.Unlock()
	if both {
		l.end(false)
	}
}

// notify puts an item into a channel of capacity 1, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
