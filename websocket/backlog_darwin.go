package websocket

import "golang.org/x/sys/unix"

// sysOutgoing returns how many bytes the kernel holds that the peer's kernel
// has not acknowledged.
func sysOutgoing(fd uintptr) int {
	n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_NWRITE)
	if err != nil {
		return 0
	}
	return n
}

// limitUnsent makes the kernel hold at most about n bytes that it cannot send
// yet, so that later messages wait for less.
func limitUnsent(fd uintptr, n int) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n) // on failure the kernel only holds more
}
