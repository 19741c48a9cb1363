package embedpg

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// socketPath is the directory of the socket: in the data directory, or in /tmp if that
// path does not fit into a sockaddr_un.
func (l layout) socketPath() string {
	const most = 104 - 1 - len("/.s.PGSQL.5432") // macOS has 104 bytes, Linux 108
	if len(l.run()) <= most {
		return l.run()
	}
	sum := sha256.Sum256([]byte(l.dir))
	return filepath.Join("/tmp", "tidewire-"+hex.EncodeToString(sum[:8]))
}

// makeSocketDir makes the directory of the socket. Only the account and root can enter
// it.
func (l layout) makeSocketDir(as account) (string, error) {
	dir := l.socketPath()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", l.notWritable(err)
	}
	// In /tmp another user may have made it before.
	info, err := os.Lstat(dir)
	if err != nil {
		return "", l.notWritable(err)
	}
	uid, _ := ownerOf(info)
	if !info.IsDir() || (uid != as.uid && uid != uint32(os.Geteuid())) {
		return "", fmt.Errorf("%w: %s, for the socket of PostgreSQL, belongs to another user: remove it, or choose a data directory with a shorter path", ErrNotWritable, dir)
	}
	if err := errors.Join(as.give(dir), os.Chmod(dir, 0o700)); err != nil {
		return "", l.notWritable(err)
	}
	return dir, as.canEnter(filepath.Dir(dir))
}

// clearSocket removes the socket files of an ended postmaster: the pid in its lock file
// may now belong to another process, and then PostgreSQL would not start. No postmaster
// may run.
func (l layout) clearSocket() error {
	for _, name := range []string{".s.PGSQL." + port, ".s.PGSQL." + port + ".lock"} {
		if err := os.Remove(filepath.Join(l.socketPath(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return l.notWritable(err)
		}
	}
	return nil
}

// dropSocketDir removes the socket directory from /tmp after PostgreSQL has ended.
func (l layout) dropSocketDir() error {
	if l.socketPath() == l.run() {
		return nil
	}
	err := errors.Join(l.clearSocket(), os.Remove(l.socketPath()))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
