//go:build !unix

package websocket

import (
	"errors"
	"net"
	"syscall"
)

// Other systems use a socket like any other net.Conn.

func rawConn(net.Conn) syscall.RawConn { return nil }

func again(error) bool { return false }

func sysRead(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }

func sysWrite(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
