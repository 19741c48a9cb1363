//go:build !linux && !darwin

package websocket

// sysWritev writes the first buffer that is not empty.
func sysWritev(fd uintptr, parts [][]byte) (int, error) {
	for _, part := range parts {
		if len(part) > 0 {
			return sysWrite(fd, part)
		}
	}
	return 0, nil
}
