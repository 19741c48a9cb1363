//go:build unix

package websocket

import (
	"errors"
	"net"
	"syscall"
)

// rawConn returns access to the socket, or nil if the connection is not exactly
// a socket: a type that wraps one may do more than the socket does. One that only closes it in another way has a method PlainSocket.
func rawConn(conn net.Conn) syscall.RawConn {
	var raw syscall.RawConn
	switch s := conn.(type) {
	case *net.TCPConn:
		raw, _ = s.SyscallConn()
	case interface{ PlainSocket() *net.TCPConn }:
		raw, _ = s.PlainSocket().SyscallConn()
	case *net.UnixConn:
		raw, _ = s.SyscallConn()
	}
	return raw
}

// again reports that the socket has nothing to read, or no room to write.
func again(err error) bool {
	return errors.Is(err, syscall.EAGAIN)
}

// sysRead is one read of the socket, which never blocks.
func sysRead(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// sysWrite is one write to the socket, which never blocks.
func sysWrite(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
