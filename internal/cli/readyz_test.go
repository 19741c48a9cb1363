package cli_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestReadyz_DatabaseRefuses: ready means that a write would be acknowledged.
// Otherwise the answer says why not.
func TestReadyz_DatabaseRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--database-url", db.URL)
	p.awaitReadyz(t, 200, "ok")
	const others = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	name := strings.TrimPrefix(pathOf(t, db.URL), "/")
	execSQL(t, db, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	execSQL(t, db, others)
	p.awaitReadyz(t, 503, "read-only")
	execSQL(t, db, "SET default_transaction_read_only = off; ALTER DATABASE "+name+" RESET default_transaction_read_only")
	execSQL(t, db, "SET default_transaction_read_only = off; "+others)
	p.awaitReadyz(t, 200, "ok")
	execSQL(t, db, "SET default_transaction_read_only = off; DROP SCHEMA tidewire CASCADE")
	p.awaitReadyz(t, 503, "tidewire db migrate")
}

// TestReadyz_WritersStarve: PostgreSQL answers, but accepted messages are not stored.
func TestReadyz_WritersStarve(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	p := serve(t, "--database-url", db.URL)
	request(t, "POST", p.Addr, "/v1/streams/s", "")
	w := wireDial(t, p.Addr)
	w.ask(`{"type":"publish","stream":"s","payload":"first","id":1}`)
	lock, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	if _, err := lock.Exec(t.Context(), `LOCK TABLE tidewire.shared_message IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	say(w.Conn, `{"type":"publish","stream":"s","payload":"second","id":2}`)
	p.awaitReadyz(t, 503, "have stored nothing for")
	lock.Rollback(context.Background())
	p.awaitReadyz(t, 200, "ok")
}

// TestReadyz_FullDisk fills the file system of a database's tablespace.
func TestReadyz_FullDisk(t *testing.T) {
	notShort(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "tw-full-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m,mode=0711", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("needs a small file system, which this user may not mount: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	server := pgtest.Start(t)
	info, err := os.Stat(filepath.Join(server.DataDir(), "pgdata"))
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	space := filepath.Join(dir, "space")
	if err := errors.Join(os.Mkdir(space, 0o700), os.Chown(space, int(owner.Uid), int(owner.Gid))); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"CREATE TABLESPACE small LOCATION '" + space + "'", "CREATE DATABASE small TABLESPACE small TEMPLATE template0"} {
		runSQL(t, server.URL(), sql)
	}
	p := serve(t, "--database-url", strings.Replace(server.URL(), ":///tidewire?", ":///small?", 1))
	p.awaitReadyz(t, 200, "ok")
	full, err := os.Create(filepath.Join(dir, "full"))
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for err == nil {
		_, err = full.Write(make([]byte, 4096))
	}
	p.awaitReadyz(t, 503, "disk is full")
	if err := full.Truncate(0); err != nil {
		t.Fatal(err)
	}
	p.awaitReadyz(t, 200, "ok")
	p.Stop(t)
	runSQL(t, server.URL(), "DROP DATABASE small WITH (FORCE)")
}
