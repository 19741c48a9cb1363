package pg

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// sessionIdle is how long a session that nobody borrows keeps its connection.
	sessionIdle = 30 * time.Second
	// maxSessions bounds the sessions of a Lender. With more concurrent commits each
	// batch is smaller, and nothing is gained on the machines that were measured.
	maxSessions = 8
	// slowAfter is how long a session is lent before it counts as slow, and frees its
	// slot for another borrower.
	slowAfter = time.Second
)

// Lender lends the sessions on which a process writes to a database: one session to
// one batch, first come, first served. It is a resource pool with a queue: a few
// connections serve any number of streams and event stores, and none of these owns a
// connection. A pool has one Lender, which exists while somebody has joined it.
//
// Safe for concurrent use.
type Lender struct {
	pool     *pgxpool.Pool
	lifetime time.Duration // of a connection

	// Semaphore: one element for each session that is lent. Borrowers are served in
	// order of arrival, as with every channel.
	lent chan struct{}
	// The same for the sessions that are set aside for slow borrowers, which wait for a
	// lock or work for long, so that other borrowers need not wait for them.
	aside chan struct{}

	mu     sync.Mutex
	idle   []*Session // the one last used at the end
	expiry *time.Timer
	closed bool
}

var lenders PerPool[*Lender]

// JoinLender returns the Lender of the pool; the caller has to Leave it. The Lender
// lends a quarter of the pool's connections, at least two and at most eight, and the
// same number again to slow borrowers, as far as the pool has them. The other
// connections are for reads. At least one connection is always left for reads, if the
// pool has two or more.
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

// Leave has to be called once for each JoinLender, after all borrowed sessions are
// returned. The last Leave closes the connections.
func (l *Lender) Leave() {
	if lenders.Leave(l.pool) {
		l.close()
	}
}

// Borrow waits for a session, and returns ctx's error if ctx ends first. If possible it
// returns last, the session that the caller had before, where its statements are
// prepared. The caller has to Return the session after one batch.
func (l *Lender) Borrow(ctx context.Context, last *Session) (*Session, error) {
	if err := Acquire(ctx, l.lent); err != nil {
		return nil, err
	}
	s := l.pick(last)
	l.watch(s)
	return s, nil
}

// watch starts the timer that sets the session aside when it is slow.
func (l *Lender) watch(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.slow == nil {
		s.slow = time.AfterFunc(slowAfter, func() { l.setAside(s) })
		return
	}
	s.slow.Reset(slowAfter)
}

// setAside moves a slow session from the lent sessions to those set aside, if there is
// room, so that another borrower gets its slot.
func (l *Lender) setAside(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.borrowed.IsZero() || s.aside || time.Since(s.borrowed) < slowAfter {
		return // it was returned meanwhile, and perhaps lent again, which has restarted the timer
	}
	select {
	case l.aside <- struct{}{}:
		s.aside = true
		<-l.lent
	default:
		s.slow.Reset(slowAfter)
	}
}

// BorrowAside is Borrow for a caller that may work, or wait for a lock, for long. It
// does not wait: it returns nil if all sessions that are set aside for that are taken.
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

// Return returns a session to the Lender.
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

// expireLater schedules expire, unless it is scheduled already. The caller holds mu.
func (l *Lender) expireLater(wait time.Duration) {
	if l.expiry == nil && !l.closed {
		l.expiry = time.AfterFunc(wait, l.expire)
	}
}

// expire closes the sessions that were idle for sessionIdle.
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

// close closes all sessions. None is lent.
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
