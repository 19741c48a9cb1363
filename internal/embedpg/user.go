package embedpg

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is an operating system user that PostgreSQL runs as.
type account struct {
	name     string
	uid, gid uint32
	other    bool // not the user of this process, so root has to switch to it
}

// runAs returns the account for PostgreSQL: the user of this process. PostgreSQL refuses
// to run as root, so root uses the owner of existing data, because PostgreSQL has to own
// its directory, or else the user postgres or nobody.
func runAs(pgdata string) (account, error) {
	euid := os.Geteuid()
	if euid != 0 {
		u, err := user.LookupId(strconv.Itoa(euid))
		if err != nil {
			return account{}, fmt.Errorf("%w: user id %d has no name, which PostgreSQL needs: add it to /etc/passwd, or start as root or as a named user", ErrNoUser, euid)
		}
		return account{name: u.Username, uid: uint32(euid), gid: uint32(os.Getegid())}, nil
	}
	if info, err := os.Stat(pgdata); err == nil {
		if uid, _ := ownerOf(info); uid != 0 {
			return lookup(strconv.FormatUint(uint64(uid), 10), user.LookupId)
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if a, err := lookup(name, user.Lookup); err == nil {
			return a, nil
		}
	}
	return account{}, fmt.Errorf("%w: PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody: create one, or start as an ordinary user", ErrNoUser)
}

func lookup(key string, find func(string) (*user.User, error)) (account, error) {
	u, err := find(key)
	if err != nil {
		return account{}, fmt.Errorf("%w: %w", ErrNoUser, err)
	}
	// ParseInt, because macOS may print nobody's id as -2.
	uid, errUID := strconv.ParseInt(u.Uid, 10, 64)
	gid, errGID := strconv.ParseInt(u.Gid, 10, 64)
	if err := errors.Join(errUID, errGID); err != nil {
		return account{}, fmt.Errorf("%w: user %s: %w", ErrNoUser, u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid), other: uint32(uid) != uint32(os.Geteuid())}, nil
}

// give makes the account the owner of a path that this process has made.
func (a account) give(path string) error {
	if !a.other {
		return nil
	}
	return os.Lchown(path, int(a.uid), int(a.gid))
}

// makeWay makes the directories that are missing up to dir. The account can
// pass through them with any umask: 077 is common for root.
func (a account) makeWay(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := a.makeWay(filepath.Dir(dir)); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil // another process was faster
	}
	if err == nil && a.other {
		err = os.Chmod(dir, 0o755)
	}
	return err
}

// canEnter returns an error that names the directory on the way to dir that the account
// may not enter, or nil.
func (a account) canEnter(dir string) error {
	if !a.other {
		return nil // this process got there itself
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	for d := resolved; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritable, err)
		}
		if !a.hasExecute(info) {
			return fmt.Errorf("%w: started as root, PostgreSQL runs as the user %s, who cannot enter %s on the way to %s: choose a directory outside it, or allow it with: chmod o+x %s", ErrNotWritable, a.name, d, dir, d)
		}
		if d == filepath.Dir(d) {
			return nil
		}
	}
}

func (a account) hasExecute(info os.FileInfo) bool {
	uid, gid := ownerOf(info)
	switch {
	case uid == a.uid:
		return info.Mode()&0o100 != 0
	case gid == a.gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}

func ownerOf(info os.FileInfo) (uid, gid uint32) {
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}
