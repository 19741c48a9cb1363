package embedpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// The cluster is Tidewire's alone, so its role may do everything in it.
const (
	role     = "tidewire"
	database = "tidewire"
)

// initdb makes a new cluster.
func (l layout) initdb(ctx context.Context, cfg Config, as account, b binaries) error {
	cfg.Progress(fmt.Sprintf("creating a PostgreSQL %d database in %s", b.major, l.dir))
	return l.assemble(func(tmp string) error {
		if err := as.give(tmp); err != nil {
			return l.notWritable(err)
		}
		_, err := output(as.command(ctx, cfg.childEnv(), b.path("initdb"),
			"-D", tmp, "-U", role, "-E", "UTF8", "--locale=C",
			"--auth-local=peer", "--auth-host=reject", "--no-instructions"))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrStart, b.path("initdb"), err)
		}
		return nil
	})
}

// assemble makes a data directory under a temporary name, with fill, and renames it when
// it is complete, so that a crash leaves no incomplete directory that looks like data.
func (l layout) assemble(fill func(tmp string) error) error {
	tmp, err := os.MkdirTemp(l.dir, "pgdata.new-")
	if err != nil {
		return l.notWritable(err)
	}
	defer os.RemoveAll(tmp) // fails to find it after the rename
	if err := fill(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, l.pgdata()); err != nil {
		return l.notWritable(err)
	}
	return syncDir(l.dir)
}

// writeAccess writes the files that define who may connect: on the socket, the user
// of this process, root, and the account that PostgreSQL runs as, which owns the files.
// They are written at every start, since another user may start it.
func (l layout) writeAccess(as account) error {
	names := []string{"root", as.name}
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		names = append(names, u.Username)
	}
	slices.Sort(names)
	const head = "# Written by tidewire at every start: changes do not last.\n"
	hba := head + "local all all peer map=tidewire\nlocal replication all peer map=tidewire\n"
	ident := head
	for _, name := range slices.Compact(names) {
		ident += `tidewire "` + strings.ReplaceAll(name, `"`, `""`) + `" ` + role + "\n"
	}
	// The account could place a symbolic link there that leads root elsewhere.
	root, err := os.OpenRoot(l.pgdata())
	if err != nil {
		return l.notWritable(err)
	}
	defer root.Close()
	for name, text := range map[string]string{"pg_hba.conf": hba, "pg_ident.conf": ident} {
		if old, err := root.ReadFile(name); err == nil && string(old) == text {
			continue
		}
		if err := replaceFile(root, name, text, as); err != nil {
			return l.notWritable(err)
		}
	}
	return nil
}

func replaceFile(root *os.Root, name, text string, as account) error {
	tmp := name + ".tidewire"
	if err := root.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if as.other {
		err = errors.Join(err, f.Chown(int(as.uid), int(as.gid)))
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}
