package cli

import (
	"net"
	"slices"

	"github.com/tidewire/tidewire/websocket"
)

// accessFlags control who may use the server, and how much of it.
type accessFlags struct {
	AllowOrigin   []string `placeholder:"ORIGIN" help:"Origin of web pages that may use the server, besides the server's own, such as https://app.example.com or https://*.example.com. May be repeated."`
	AllowedHost   []string `placeholder:"NAME" help:"Another host name of a server that listens on a loopback address, for example the name that its proxy has. May be repeated."`
	MaxPartitions int      `default:"64" help:"Maximum number of partitions of a stream that a client creates. A busy partition has its own files and its own writer."`
}

// access returns the policy of origins and host names for a server with these
// listeners, which has certificates for hosts.
func (f accessFlags) access(listeners []net.Listener, hosts []string) (*websocket.Access, error) {
	cfg := websocket.AccessConfig{Origins: f.AllowOrigin, Hosts: append(slices.Clone(f.AllowedHost), hosts...), Loopback: onLoopback(listeners)}
	access, err := websocket.NewAccess(cfg)
	if err != nil {
		return nil, exit(ExitUsage, "%w", err)
	}
	return access, nil
}

// onLoopback reports whether only programs of this machine can connect.
func onLoopback(listeners []net.Listener) bool {
	for _, l := range listeners {
		if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
			return false
		}
	}
	return true
}
