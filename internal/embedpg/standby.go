package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// copyPrimary makes pgdata a copy of that of a running primary, ready to start as its standby. It is
// a base backup by the file system (https://www.postgresql.org/docs/current/continuous-archiving.html,
// "low-level API"): pg_basebackup is not among the fetched binaries. Like initdb it works beside its
// place.
func (l layout) copyPrimary(ctx context.Context, cfg Config, as account) error {
	cfg.Progress(fmt.Sprintf("copying the database of %s to %s", cfg.Primary.DataDir(), l.dir))
	tmp, err := os.MkdirTemp(l.dir, "pgdata.new-")
	if err != nil {
		return l.notWritable(err)
	}
	defer os.RemoveAll(tmp) // fails to find it after the rename
	if err := as.give(tmp); err != nil {
		return l.notWritable(err)
	}
	conn, err := pgx.Connect(ctx, cfg.Primary.URL())
	if err != nil {
		return fmt.Errorf("%w: copy of a primary: %w", ErrStart, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	label, err := backup(ctx, conn, slotOf(l), func() error {
		return copyTree(ctx, cfg.Primary.dir.pgdata(), tmp, as)
	})
	if err != nil {
		return fmt.Errorf("%w: copy of a primary: %w", ErrStart, err)
	}
	for name, text := range map[string]string{
		"backup_label": label, "standby.signal": "", "postgresql.auto.conf": cfg.Primary.standbySettings(slotOf(l)),
	} {
		if err := addFile(filepath.Join(tmp, name), text, as); err != nil {
			return l.notWritable(err)
		}
	}
	if err := os.Rename(tmp, l.pgdata()); err != nil {
		return l.notWritable(err)
	}
	return syncDir(l.dir)
}

// backup tells the primary that do makes a backup, and returns the label that belongs into it.
// The slot keeps what the standby has not got yet.
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

// notCopied are what a standby makes for itself, below pgdata: of directories, what is in them.
var notCopied = map[string]bool{
	"postmaster.pid": true, "postmaster.opts": true, "pg_wal": true, "pg_replslot": true, "pg_notify": true,
	"pg_dynshmem": true, "pg_serial": true, "pg_snapshots": true, "pg_subtrans": true, "pg_stat_tmp": true,
}

// copyTree copies a data directory that is in use. Files that are gone before they are copied are not needed: the
// log that the standby replays says so.
func copyTree(ctx context.Context, from, to string, as account) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Join(err, relErr, ctx.Err()) != nil:
			return errors.Join(err, relErr, ctx.Err())
		case name == ".":
			return nil
		}
		below, _, inside := strings.Cut(name, string(filepath.Separator))
		if notCopied[below] && (inside || !entry.IsDir()) && name != filepath.Join("pg_wal", "archive_status") {
			return skip(entry)
		}
		target := filepath.Join(to, name)
		switch {
		case entry.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return as.give(target)
		case entry.Type().IsRegular():
			return copyFile(path, target, as)
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

func copyFile(from, to string, as account) error {
	source, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	return writeFile(to, source, as)
}

// addFile makes or replaces a file.
func addFile(path, text string, as account) error {
	return writeFile(path, strings.NewReader(text), as)
}

func writeFile(path string, text io.Reader, as account) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, text)
	return errors.Join(err, as.give(path), f.Sync(), f.Close())
}
