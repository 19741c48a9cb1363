package bench

import (
	"context"
	"net"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/websocket"
)

// dialRaw makes the WebSocket handshake and removes the socket from the Go
// runtime's poller.
func dialRaw(ctx context.Context, rawURL string) (fd int, leftover []byte, err error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return 0, nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	leftover, err = websocket.ClientHandshake(conn, u)
	if err != nil {
		return 0, nil, err
	}
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return 0, nil, err
	}
	defer file.Close()
	fd, err = unix.Dup(int(file.Fd()))
	if err != nil {
		return 0, nil, err
	}
	unix.CloseOnExec(fd)
	return fd, leftover, unix.SetNonblock(fd, true)
}
