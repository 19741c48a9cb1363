package pg

// Outlive has all connections of the Borrower's Lender be older than they may be.
func (b *Borrower) Outlive() { b.lender.lifetime = 0 }

// Watching reports whether connections are watched in this process.
func Watching() bool {
	hostsMu.Lock()
	defer hostsMu.Unlock()
	for _, h := range allHosts {
		h.mu.Lock()
		watched := h.watched
		h.mu.Unlock()
		if watched {
			return true
		}
	}
	return false
}
