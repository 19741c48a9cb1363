package pg

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// sessionIdle is for how long a session that nobody borrows keeps its connection.
	sessionIdle = 30 * time.Second
	// maxSessions bounds the sessions of a Lender. More commits at a time than this
	// share less of their costs, and gain nothing on the machines that were measured.
	maxSessions = 8
	// slowAfter is when a session that is still lent makes room for another one.
	slowAfter = time.Second
)

// Lender lends the sessions on which a process writes to a database: to one
// batch each, first come, first served. So a few connections serve any number of
// streams and event stores, and none of these owns one (a resource pool with a
// queue). A pool has one Lender, which exists while somebody has joined it.
//
// Safe for concurrent use.
type Lender struct {
	pool     *pgxpool.Pool
	lifetime time.Duration // of a connection

	// One element for each session that is lent. Those who wait for one are served in
	// the order in which they came, as with every channel.
	lent chan struct{}
	// The same for sessions set aside for those who wait for a lock for long, or take
	// long: nobody else has to wait for that.
	aside chan struct{}

	mu     sync.Mutex
	idle   []*Session // the one last used at the end
	expiry *time.Timer
	closed bool
}

var lenders PerPool[*Lender]

// JoinLender returns the Lender of the pool, to be left in the end. It lends a
// quarter of the pool's connections, but two at least and eight at most, and as many
// again to those who wait for locks, as far as the pool has them. The others are for
// those who read; one is left to them in any case, of a pool that has two.
func JoinLender(pool *pgxpool.Pool) *Lender {
	return lenders.Join(pool, func() *Lender {
		cfg := pool.Config()
		conns := int(cfg.MaxConns)
		n := min(max(conns/4, 2), maxSessions, max(conns-1, 1))
		return &Lender{
			pool: pool, lifetime: cfg.MaxConnLifetime,
			lent: make(chan struct{}, n), aside: make(chan struct{}, max(min(n, conns-1-n), 0)),
		}
	})
}

// Leave has to be called once for each JoinLender, after all that was borrowed is
// returned. The last one closes the connections.
func (l *Lender) Leave() {
	if lenders.Leave(l.pool) {
		l.close()
	}
}

// Borrow waits for a session, and returns ctx's error if ctx ends first. It is the
// last one that the caller had, if nobody has that: there the caller's statements are
// prepared. Return it after one batch.
func (l *Lender) Borrow(ctx context.Context, last *Session) (*Session, error) {
	if err := Acquire(ctx, l.lent); err != nil {
		return nil, err
	}
	s := l.pick(last)
	l.watch(s)
	return s, nil
}

// watch has the session set aside once it is slow.
func (l *Lender) watch(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.slow == nil {
		s.slow = time.AfterFunc(slowAfter, func() { l.setAside(s) })
		return
	}
	s.slow.Reset(slowAfter)
}

// setAside counts a session that is lent for long among those that are set aside, as far
// as there is room: others may borrow in its place.
func (l *Lender) setAside(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.borrowed.IsZero() || s.aside || time.Since(s.borrowed) < slowAfter {
		return // it was returned meanwhile, and perhaps lent again, which has the timer go on
	}
	select {
	case l.aside <- struct{}{}:
		s.aside = true
		<-l.lent
	default:
		s.slow.Reset(slowAfter)
	}
}

// BorrowAside is Borrow for a caller that may take long, or wait for a lock for long. It
// returns nil if all sessions that are set aside for that are taken.
func (l *Lender) BorrowAside(last *Session) *Session {
	select {
	case l.aside <- struct{}{}:
	default:
		return nil
	}
	s := l.pick(last)
	l.mu.Lock()
	s.aside = true
	l.mu.Unlock()
	return s
}

// Return gives a session back.
func (l *Lender) Return(s *Session) {
	if time.Since(s.opened) >= l.lifetime {
		s.Close() // as the pool does with its own
	}
	l.mu.Lock()
	if s.slow != nil {
		s.slow.Stop()
	}
	aside := s.aside
	s.aside, s.borrowed, s.used = false, time.Time{}, time.Now()
	if s.conn != nil {
		l.idle = append(l.idle, s)
		l.expireLater(sessionIdle)
	}
	l.mu.Unlock()
	if aside {
		<-l.aside
	} else {
		<-l.lent
	}
}

func (l *Lender) pick(last *Session) *Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle)
	if n == 0 {
		return &Session{pool: l.pool, borrowed: time.Now()}
	}
	at := slices.Index(l.idle, last)
	if at < 0 {
		at = n - 1
	}
	s := l.idle[at]
	l.idle = slices.Delete(l.idle, at, at+1)
	s.borrowed = time.Now()
	return s
}

// expireLater has expire called, unless it will be. The caller holds mu.
func (l *Lender) expireLater(wait time.Duration) {
	if l.expiry == nil && !l.closed {
		l.expiry = time.AfterFunc(wait, l.expire)
	}
}

// expire closes the sessions that were idle for long.
func (l *Lender) expire() {
	l.mu.Lock()
	l.expiry = nil
	old := 0
	for old < len(l.idle) && time.Since(l.idle[old].used) >= sessionIdle {
		old++
	}
	gone := slices.Clone(l.idle[:old])
	l.idle = slices.Delete(l.idle, 0, old)
	if len(l.idle) > 0 {
		l.expireLater(max(sessionIdle-time.Since(l.idle[0].used), time.Millisecond))
	}
	l.mu.Unlock()
	for _, s := range gone {
		s.Close()
	}
}

// close closes all sessions: nobody has one.
func (l *Lender) close() {
	l.mu.Lock()
	l.closed = true
	if l.expiry != nil {
		l.expiry.Stop()
	}
	gone := l.idle
	l.idle = nil
	l.mu.Unlock()
	for _, s := range gone {
		s.Close()
	}
}
