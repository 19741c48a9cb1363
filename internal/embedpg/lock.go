package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errLocked means that another open file has the lock.
var errLocked = errors.New("locked")

// flock opens a file and locks it, without waiting. The kernel releases the lock
// with the file, so a killed owner leaves no lock; close-on-exec, which os.OpenFile
// sets, keeps PostgreSQL from inheriting it. O_NOFOLLOW, because root may do this where
// another user can place a symbolic link.
func flock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f, syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func tryLock(f *os.File, how int) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// own makes this process the owner of a data directory.
func (l layout) own(ctx context.Context) (*os.File, error) {
	// Retry for 300 ms, because Status holds the lock for a moment.
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var lock *os.File
	err := poll(ctx, func() (bool, error) {
		var err error
		lock, err = flock(l.lock())
		if errors.Is(err, errLocked) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, l.inUse(l.ownerPID())
	case errors.Is(err, context.Canceled):
		return nil, err
	case err != nil:
		return nil, l.notWritable(err)
	}
	if err := errors.Join(l.handOver(lock.Name()), lock.Truncate(0)); err != nil {
		unlock(lock)
		return nil, l.notWritable(err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		unlock(lock)
		return nil, l.notWritable(err)
	}
	return lock, nil
}

func (l layout) inUse(pid int) error {
	who := "another process"
	if pid > 0 {
		who = "process " + strconv.Itoa(pid)
	}
	return fmt.Errorf("%w: %s uses %s: stop it, or choose another data directory", ErrInUse, who, l.dir)
}

// ownerPID returns the pid that the owner has written, or 0 if it has not done so yet.
func (l layout) ownerPID() int {
	text, err := os.ReadFile(l.lock())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}

// owned tells whether a process owns the directory. It does not take ownership.
func (l layout) owned() (bool, error) {
	f, err := os.Open(l.lock())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	err = tryLock(f, syscall.LOCK_SH)
	if errors.Is(err, errLocked) {
		return true, f.Close()
	}
	return false, errors.Join(err, unlock(f))
}

// release ends the ownership. It removes the pid first, so that the file never names a
// process that is not the owner.
func release(lock *os.File) error {
	return errors.Join(lock.Truncate(0), unlock(lock))
}

// unlock releases the lock of a file and closes it. To close it is not enough: a child
// process that another goroutine starts at this moment has a copy of the descriptor
// until it executes its program.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

// readAll reads at most 64 KiB of a file, and follows no symbolic link: root may read it
// in a directory where another user can write.
func readAll(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 64<<10))
}
