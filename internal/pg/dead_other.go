//go:build !linux

package pg

import "net"

// dead cannot be determined on this system, which ends such a connection after some minutes.
func dead(net.Conn) bool { return false }
