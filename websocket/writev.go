//go:build linux || darwin

package websocket

import "golang.org/x/sys/unix"

// sysWritev is one write of several buffers to the socket, which never blocks.
func sysWritev(fd uintptr, parts [][]byte) (int, error) {
	for {
		n, err := unix.Writev(int(fd), parts)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
