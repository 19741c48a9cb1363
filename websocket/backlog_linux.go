package websocket

import "golang.org/x/sys/unix"

// sysOutgoing is how many bytes the kernel holds that the peer's has not
// acknowledged: SIOCOUTQ, which has TIOCOUTQ's number.
func sysOutgoing(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}
