package pg

import (
	"net"

	"golang.org/x/sys/unix"
)

// dead reports whether data that were sent were not acknowledged for three seconds, though they were sent again: there is no
// machine at the other end, or packets are swallowed. A server that does not read acknowledges all the same.
func dead(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.Unacked > 0 && info.Retransmits >= 2 && info.Last_ack_recv >= deadAfter && info.Last_data_recv >= deadAfter
	})
	return gone
}

// deadAfter is in milliseconds.
const deadAfter = 3000
