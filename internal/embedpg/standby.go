package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// copyPrimary copies the pgdata of a running primary, so that it can start as its standby. It makes
// a base backup on the file system level (https://www.postgresql.org/docs/current/continuous-archiving.html,
// "low-level API"), because the fetched binaries do not include pg_basebackup.
func (l layout) copyPrimary(ctx context.Context, cfg Config, as account) error {
	cfg.Progress(fmt.Sprintf("copying the database of %s to %s", cfg.Primary.DataDir(), l.dir))
	return l.assemble(func(tmp string) error {
		conn, err := pgx.Connect(ctx, cfg.Primary.URL())
		if err != nil {
			return fmt.Errorf("%w: copy of a primary: %w", ErrStart, err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if err := l.copyInto(ctx, conn, cfg.Primary, tmp, as); err != nil {
			return fmt.Errorf("%w: copy of a primary: %w", ErrStart, err)
		}
		return nil
	})
}

// copyInto fills tmp. The account that PostgreSQL runs as could place symbolic links in either directory
// that lead root elsewhere. So files are opened only through os.Root, and the account gets tmp at the end.
func (l layout) copyInto(ctx context.Context, conn *pgx.Conn, primary *Server, tmp string, as account) error {
	from, err := os.OpenRoot(primary.dir.pgdata())
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer to.Close()
	c := copier{from: from, to: to, as: as}
	label, err := backup(ctx, conn, slotOf(l), func() error { return c.tree(ctx) })
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"backup_label": label, "standby.signal": "", autoConf: primary.standbySettings(slotOf(l)),
	} {
		if err := c.add(name, text); err != nil {
			return err
		}
	}
	return as.give(tmp)
}

// backup puts the primary into backup mode while do copies it, and returns the label file for the copy.
// The replication slot keeps the write-ahead log that the standby has not received yet.
func backup(ctx context.Context, conn *pgx.Conn, slot string, do func() error) (label string, err error) {
	start, stop := `SELECT pg_backup_start('tidewire standby', true)`, `SELECT labelfile FROM pg_backup_stop(false)`
	if strings.HasPrefix(serverVersion(conn), "14.") {
		start, stop = `SELECT pg_start_backup('tidewire standby', true, false)`, `SELECT labelfile FROM pg_stop_backup(false, false)`
	}
	if _, err := conn.Exec(ctx, `SELECT pg_create_physical_replication_slot($1, true) WHERE NOT EXISTS (
		SELECT FROM pg_replication_slots WHERE slot_name = $1)`, slot); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, start); err != nil {
		return "", err
	}
	if err := do(); err != nil {
		return "", err
	}
	err = conn.QueryRow(ctx, stop).Scan(&label)
	return label, err
}

// slotOf names the replication slot of a standby: letters, digits and underscores.
func slotOf(l layout) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(l.dir))
	return name[max(0, len(name)-60):] // of 63 at most
}

// standbySettings say where the primary is.
func (s *Server) standbySettings(slot string) string {
	quote := strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace
	return fmt.Sprintf("primary_conninfo = 'host=''%s'' port=%s user=%s application_name=%s'\nprimary_slot_name = '%s'\n",
		quote(quote(s.dir.run())), port, role, slot, slot)
}

// autoConf is the file with the settings of ALTER SYSTEM. PostgreSQL reads it last.
const autoConf = "postgresql.auto.conf"

// notCopied are the files, and the directories with their contents, that a standby makes itself.
var notCopied = map[string]bool{
	"postmaster.pid": true, "postmaster.opts": true, "pg_wal": true, "pg_replslot": true, "pg_notify": true,
	"pg_dynshmem": true, "pg_serial": true, "pg_snapshots": true, "pg_subtrans": true, "pg_stat_tmp": true,
}

// copier copies a data directory that is in use.
type copier struct {
	from, to *os.Root
	as       account
}

// tree copies all files. It may skip files that are deleted before they are copied: the standby replays
// their deletion from the log.
func (c copier) tree(ctx context.Context) error {
	return fs.WalkDir(c.from.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Join(err, ctx.Err()) != nil:
			return errors.Join(err, ctx.Err())
		case name == ".":
			return nil
		}
		below, _, inside := strings.Cut(name, "/")
		switch {
		case notCopied[below] && (inside || !entry.IsDir()) && name != "pg_wal/archive_status":
			return skip(entry)
		case entry.IsDir():
			return c.makeDir(name)
		case entry.Type().IsRegular():
			return c.file(name)
		}
		return nil // sockets; there are no tablespaces
	})
}

func skip(entry fs.DirEntry) error {
	if entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func (c copier) makeDir(name string) error {
	if err := c.to.Mkdir(name, 0o700); err != nil || !c.as.other {
		return err
	}
	return c.to.Lchown(name, int(c.as.uid), int(c.as.gid))
}

func (c copier) file(name string) error {
	source, err := c.from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe in its place would block
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	return c.write(name, os.O_EXCL, source)
}

// add appends to a file, and creates it if it is missing.
func (c copier) add(name, text string) error {
	return c.write(name, os.O_APPEND, strings.NewReader(text))
}

func (c copier) write(name string, how int, text io.Reader) error {
	f, err := c.to.OpenFile(name, os.O_CREATE|os.O_WRONLY|how, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, text)
	if c.as.other {
		err = errors.Join(err, f.Chown(int(c.as.uid), int(c.as.gid)))
	}
	return errors.Join(err, f.Sync(), f.Close())
}
