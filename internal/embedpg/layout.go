package embedpg

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// layout returns the paths of the files in a data directory.
type layout struct {
	dir string // absolute, without symbolic links
}

func (l layout) lock() string     { return filepath.Join(l.dir, "tidewire.lock") }
func (l layout) pgdata() string   { return filepath.Join(l.dir, "pgdata") }
func (l layout) run() string      { return filepath.Join(l.dir, "run") }
func (l layout) log() string      { return filepath.Join(l.dir, "postgres.log") }
func (l layout) detached() string { return filepath.Join(l.dir, "detached") }

// openLayout looks at a directory and changes nothing. The major version of the
// data is 0 if there is none yet.
func openLayout(dir string) (l layout, major int, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return layout{}, 0, err
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real // postmaster.pid and /proc have the resolved path
	}
	l = layout{dir: dir}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return l, 0, nil
	}
	if err != nil {
		return l, 0, l.notWritable(err)
	}
	ours, others := false, ""
	for _, e := range entries {
		switch e.Name() {
		case filepath.Base(l.lock()):
			ours = true
		case "lost+found": // an empty disk has it
		default:
			others = cmp.Or(others, e.Name())
		}
	}
	if !ours && others != "" {
		hint := "choose another, or an empty one"
		if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
			hint = "it is PostgreSQL's own: start that PostgreSQL and give its URL, or choose another directory"
		}
		return l, 0, fmt.Errorf("%w: %s has %q in it: %s; nothing was changed", ErrForeignDir, dir, others, hint)
	}
	text, err := readAll(filepath.Join(l.pgdata(), "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(l.pgdata()); err == nil {
			return l, 0, fmt.Errorf("%w: %s has no PG_VERSION, so it was damaged: restore it from a backup, or choose another data directory; nothing was changed", ErrForeignDir, l.pgdata())
		}
		return l, 0, nil
	}
	if err != nil {
		return l, 0, l.notWritable(err)
	}
	major, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return l, 0, fmt.Errorf("%w: %s/PG_VERSION: %w", ErrForeignDir, l.pgdata(), err)
	}
	return l, major, nil
}

// create makes the directory, with a mode that lets another account pass through it. If
// that account cannot enter the parent directories, create makes nothing.
func (l layout) create(as account) error {
	mode := os.FileMode(0o700)
	if as.other {
		mode = 0o711
	}
	above := filepath.Dir(l.dir)
	for above != filepath.Dir(above) {
		if _, err := os.Stat(above); err == nil {
			break
		}
		above = filepath.Dir(above)
	}
	if err := as.canEnter(above); err != nil {
		return err
	}
	if err := as.makeWay(filepath.Dir(l.dir)); err != nil {
		return l.notWritable(err)
	}
	err := os.Mkdir(l.dir, mode)
	switch {
	case err == nil:
		err = os.Chmod(l.dir, mode)
	case errors.Is(err, os.ErrExist):
		err = nil
	}
	if err != nil {
		return l.notWritable(err)
	}
	return nil
}

// handOver makes the owner of the directory the owner of a file that root has made.
// Otherwise that user could not start PostgreSQL the next time.
func (l layout) handOver(path string) error {
	info, err := os.Stat(l.dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	uid, gid := ownerOf(info)
	return os.Lchown(path, int(uid), int(gid))
}

func (l layout) notWritable(err error) error {
	return fmt.Errorf("%w: data directory %s: %w: choose another, or start as the user who owns it", ErrNotWritable, l.dir, err)
}

// sweep removes incomplete directories of a killed process. Only the owner of the data
// directory may call it.
func (l layout) sweep() error {
	left, _ := filepath.Glob(filepath.Join(globSafe(l.dir), "pgdata.new-*"))
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return l.notWritable(err)
		}
	}
	return nil
}

// isDetached tells whether PostgreSQL has to outlive its owner.
func (l layout) isDetached() bool {
	_, err := os.Lstat(l.detached())
	return err == nil
}

func (l layout) setDetached(on bool) error {
	if !on {
		if err := os.Remove(l.detached()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return l.notWritable(err)
		}
		return nil
	}
	f, err := os.OpenFile(l.detached(), os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return l.notWritable(err)
	}
	return errors.Join(f.Close(), l.handOver(l.detached()))
}

// openLog opens the log to append to, and returns its size. It first rotates a log of
// more than 16 MiB.
func (l layout) openLog() (*os.File, int64, error) {
	const most = 16 << 20
	if info, err := os.Lstat(l.log()); err == nil && info.Size() > most {
		if err := os.Rename(l.log(), l.log()+".1"); err != nil {
			return nil, 0, err
		}
	}
	f, err := os.OpenFile(l.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, l.handOver(l.log())); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}
