package pg

// Outlive has all connections of the Borrower's Lender be older than they may be.
func (b *Borrower) Outlive() { b.lender.lifetime = 0 }
