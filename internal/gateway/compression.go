package gateway

import "github.com/tidewire/tidewire/websocket"

// compressing returns the setting for connections. Browsers compress every message, also the one with the token: so
// before authentication a compressed message may be as large as an uncompressed one, after inflating.
func compressing(z *websocket.Compression) *websocket.Compression {
	if z == nil {
		return nil
	}
	early := *z
	early.Early = maxEarlyBytes
	return &early
}

// compression compresses frames for the connection. It is nil if the connection takes none that are compressed: also before
// authentication.
func (c *connection) compression() *websocket.Compression {
	if !c.TakesCompressed() {
		return nil
	}
	return c.owner.compression
}
