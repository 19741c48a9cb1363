package pg

import (
	"net"

	"golang.org/x/sys/unix"
)

// dead reports whether the other end has not acknowledged sent data for three seconds, in spite of retransmissions: the
// machine is gone, or packets are dropped. The kernel of a live machine acknowledges also while its server does not read.
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
