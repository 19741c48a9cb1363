package bench

// unread are sockets whose TLS layer may hold bytes. The kernel's poller sees the socket only, so it reports none of
// them.
type unread struct {
	fds map[int]struct{}
	due []int
}

// again has the next wait return at once and report fd as readable. A loop that read until nothing is left would serve
// nothing else, and never end, while the peer sends faster than it reads.
func (u *unread) again(fd int) {
	if u.fds == nil {
		u.fds = make(map[int]struct{})
	}
	u.fds[fd] = struct{}{}
}

// take returns the sockets to report, and forgets them.
func (u *unread) take() []int {
	u.due = u.due[:0]
	for fd := range u.fds {
		u.due = append(u.due, fd)
	}
	clear(u.fds)
	return u.due
}
