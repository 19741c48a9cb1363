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
