package pg

// Outlive makes all connections of the Borrower's Lender older than their lifetime.
func (b *Borrower) Outlive() { b.lender.lifetime = 0 }
