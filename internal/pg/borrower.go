package pg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Borrower borrows one session at a time, for a writer that has a batch. It joins the
// Lender of its pool with the first Hold; Close leaves it. Not safe for concurrent use.
type Borrower struct {
	pool   *pgxpool.Pool
	lender *Lender
	held   *Session
	last   *Session
}

// NewBorrower returns a Borrower of the pool's sessions.
func NewBorrower(pool *pgxpool.Pool) Borrower { return Borrower{pool: pool} }

// Hold borrows a session, unless one is held already. It may wait; its error is ctx's.
func (b *Borrower) Hold(ctx context.Context) (err error) {
	if b.held == nil {
		b.join()
		b.held, err = b.lender.Borrow(ctx, b.last)
	}
	return err
}

// HoldSlow is Hold for work that may take long: it prefers one of the sessions that are
// set aside for such work.
func (b *Borrower) HoldSlow(ctx context.Context) error {
	if b.held != nil || b.holdAside() {
		return nil
	}
	return b.Hold(ctx)
}

// holdAside borrows a session that is set aside for slow work, and reports whether one
// was free.
func (b *Borrower) holdAside() bool {
	b.join()
	b.held = b.lender.BorrowAside(b.last)
	return b.held != nil
}

func (b *Borrower) join() {
	if b.lender == nil {
		b.lender = JoinLender(b.pool)
	}
}

// Session returns the session that is held, or nil.
func (b *Borrower) Session() *Session { return b.held }

// Again reports whether the session is the same as the one held before.
func (b *Borrower) Again() bool { return b.held != nil && b.held == b.last }

// Release returns the session, if there is one.
func (b *Borrower) Release() {
	if b.held == nil {
		return
	}
	b.last = b.held
	b.held = nil
	b.lender.Return(b.last)
}

// Close releases the session and leaves the Lender.
func (b *Borrower) Close() {
	b.Release()
	if b.lender == nil {
		return
	}
	b.lender.Leave()
	b.lender, b.last = nil, nil
}
