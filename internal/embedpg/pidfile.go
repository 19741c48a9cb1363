package embedpg

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pidFile is PostgreSQL's postmaster.pid.
type pidFile struct {
	pid       int
	port      string
	socketDir string
	status    string // starting, ready, stopping, standby
	rest      string // all after the first line
}

func (l layout) pidPath() string { return filepath.Join(l.pgdata(), "postmaster.pid") }

// readPID reads the pid file; ok is false if there is none, or PostgreSQL is
// just writing it.
func (l layout) readPID() (p pidFile, ok bool, err error) {
	text, err := readAll(l.pidPath())
	if errors.Is(err, os.ErrNotExist) {
		return pidFile{}, false, nil
	}
	if err != nil {
		return pidFile{}, false, err
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	p.rest = rest
	p.pid, err = strconv.Atoi(strings.TrimSpace(first))
	if err != nil {
		return pidFile{}, false, nil
	}
	// 2 directory, 3 start time, 4 port, 5 socket directory, 6 listen
	// address, 7 shared memory, 8 status
	lines := strings.Split(rest, "\n")
	for i, field := range []*string{nil, nil, &p.port, &p.socketDir, nil, nil, &p.status} {
		if field != nil && i < len(lines) {
			*field = strings.TrimSpace(lines[i])
		}
	}
	return p, p.pid > 1, nil
}

// running returns the pid file, and whether its postmaster is alive.
func (l layout) running() (pidFile, bool, error) {
	p, ok, err := l.readPID()
	if err != nil || !ok {
		return pidFile{}, false, err
	}
	alive, err := l.isPostmaster(p.pid)
	return p, alive, err
}

// isPostmaster tells whether a pid is this directory's postmaster. The pid alone
// proves nothing: after a crash or reboot another process may have it.
func (l layout) isPostmaster(pid int) (bool, error) {
	if !exists(pid) {
		return false, nil
	}
	info, err := os.Stat(l.pgdata())
	if err != nil {
		return false, err
	}
	uid, _ := ownerOf(info)
	return servesDir(pid, l.pgdata(), uid)
}

func exists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// disarm makes the pid file of an ended postmaster harmless, if PostgreSQL would
// refuse to start because of it. Only the owner of the directory may call it, while no
// postmaster runs.
func (l layout) disarm(as account) error {
	p, ok, err := l.readPID()
	if err != nil {
		return err
	}
	if !ok {
		return l.dropEmptyPID()
	}
	if !exists(p.pid) {
		return nil // PostgreSQL finds this out itself
	}
	// The pid now belongs to another process, which PostgreSQL would take for a
	// postmaster. Replace it by the pid of this process: PostgreSQL, its child,
	// recognises its parent's pid as stale. The file has to stay, because PostgreSQL
	// also reads from it which shared memory to check for surviving backends.
	root, err := os.OpenRoot(l.pgdata())
	if err != nil {
		return err
	}
	defer root.Close()
	return replaceFile(root, filepath.Base(l.pidPath()), fmt.Sprintf("%d\n%s", os.Getpid(), p.rest), as)
}

// dropEmptyPID removes an empty pid file, which a power cut can leave. It keeps a file
// of less than 5 s, because another process may just be starting PostgreSQL.
func (l layout) dropEmptyPID() error {
	info, err := os.Lstat(l.pidPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() > 0 || time.Since(info.ModTime()) < 5*time.Second {
		return err
	}
	return os.Remove(l.pidPath())
}

// url returns the URL for clients of the postmaster.
func (p pidFile) url() string { return databaseURL(p.socketDir, p.port, database) }

func databaseURL(socketDir, port, name string) string {
	u := url.URL{Scheme: "postgres", Path: "/" + name, RawQuery: url.Values{
		"host": {socketDir}, "port": {port}, "user": {role},
	}.Encode()}
	return u.Scheme + "://" + u.EscapedPath() + "?" + u.RawQuery
}
