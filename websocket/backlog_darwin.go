package websocket

import "golang.org/x/sys/unix"

// sysOutgoing is how many bytes the kernel holds that the peer's has not
// acknowledged.
func sysOutgoing(fd uintptr) int {
	n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NWRITE)
	if err != nil {
		return 0
	}
	return n
}

// limitUnsent has the kernel take no more than about n bytes that it cannot
// send yet, so that what comes later has less to wait for.
func limitUnsent(fd uintptr, n int) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n) // without it, it takes more
}
