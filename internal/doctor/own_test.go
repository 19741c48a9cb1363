package doctor

import (
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

// TestServer_Settings: findings about the settings of a server, and the commands that fix them.
func TestServer_Settings(t *testing.T) {
	t.Parallel()
	server, admin := own(t)
	d := on(t, server.URL(), Config{})
	d.finds(t, "durability", OK, "on the disk")
	d.finds(t, "settings", Note, "shared_buffers")
	on(t, server.URL(), Config{Private: true}).finds(t, "settings", OK, "none")
	for _, c := range []struct {
		set, check string
		level      Level
		text       string
	}{
		{"fsync = off", "durability", Error, "fsync"},
		{"full_page_writes = off", "durability", Warning, "full_page_writes"},
		{"synchronous_commit = off", "durability", Note, "synchronous_commit"},
		{"autovacuum = off", "settings", Warning, "autovacuum"},
		{"track_counts = off", "settings", Warning, "track_counts"},
		{"track_activities = off", "settings", Warning, "track_activities"},
		{"jit_above_cost = 10", "settings", Note, "jit_above_cost"},
	} {
		exec(t, admin, "ALTER SYSTEM SET "+c.set, reload)
		d.mend(t, admin, d.finds(t, c.check, c.level, c.text))
	}
	exec(t, admin, "ALTER SYSTEM SET max_connections = 33", reload)
	d.finds(t, "settings", Note, "max_connections: changed in the configuration")

	exec(t, admin, "ALTER SYSTEM SET wal_level = minimal", "ALTER SYSTEM SET max_wal_senders = 0", "ALTER SYSTEM SET max_prepared_transactions = 5")
	pgtest.Crash(t, server)
	admin.Reset()
	d.pool.Reset()
	d.finds(t, "settings", Note, "wal_level is minimal")
	exec(t, admin, "SELECT 1")
	d.finds(t, "connections", Warning, "a server takes")

	strict := on(t, server.URL(), Config{limits: strict})
	strict.finds(t, "prepared", OK, "0 prepared")
	exec(t, admin, `BEGIN; SELECT txid_current(); PREPARE TRANSACTION 'it''s'`)
	d.finds(t, "prepared", OK, "1 prepared")
	strict.mend(t, admin, strict.finds(t, "prepared", Warning, `"it's"`))

	strict.finds(t, "checkpoints", OK, "in time")
	for range 3 {
		exec(t, admin, `CREATE TABLE IF NOT EXISTS t (n int); INSERT INTO t VALUES (1)`, "CHECKPOINT")
	}
	if f := strict.finds(t, "checkpoints", Warning, "max_wal_size"); f.Commands[0] != "ALTER SYSTEM SET max_wal_size = '4096MB';" {
		t.Errorf("%+v", f)
	}
}

// TestServer_ArchivingAndSlots: what keeps the log.
func TestServer_ArchivingAndSlots(t *testing.T) {
	t.Parallel()
	server, admin := own(t)
	d := on(t, server.URL(), Config{limits: strict})
	d.finds(t, "archiving", OK, "off")
	exec(t, admin, "ALTER SYSTEM SET archive_mode = on", "ALTER SYSTEM SET wal_level = logical")
	pgtest.Crash(t, server)
	admin.Reset()
	d.pool.Reset()
	d.finds(t, "archiving", Warning, "without an archive_command")
	exec(t, admin, "ALTER SYSTEM SET archive_command = 'false'", reload, "SELECT txid_current()", "SELECT pg_switch_wal()")
	d.finds(t, "archiving", Error, "fails")
	exec(t, admin, "ALTER SYSTEM SET archive_command = 'true'", reload)
	d.finds(t, "archiving", OK, "works")
	d.finds(t, "slots", OK, "0 slots")
	exec(t, admin, `SELECT pg_create_logical_replication_slot('o', 'test_decoding')`)
	d.mend(t, admin, d.finds(t, "snapshots", Warning, "slot o keeps a snapshot"))
	exec(t, admin, `SELECT pg_create_physical_replication_slot('forgotten', true)`)
	d.mend(t, admin, d.finds(t, "slots", Warning, "nobody reads slot forgotten"))
	exec(t, admin, `SELECT pg_create_physical_replication_slot('unused')`)
	d.finds(t, "slots", OK, "1 slot")
}

// TestServer_Standby: findings from an asynchronous standby to a standby that is gone.
func TestServer_Standby(t *testing.T) {
	t.Parallel()
	server, admin := own(t)
	d := on(t, server.URL(), Config{})
	d.finds(t, "sync", OK, "no standby")
	standby := pgtest.Standby(t, server)
	d.finds(t, "standbys", OK, "follows (async)")
	d.finds(t, "hosts", Note, "the URL names one host")
	d.finds(t, "slots", Note, "max_slot_wal_keep_size is unlimited")
	on(t, standby.URL(), Config{}).finds(t, "primary", Error, "this is a standby")
	for _, name := range []string{"sync", "standbys", "slots", "hosts", "size", "checkpoints"} { // they have nothing to say of a standby
		for _, f := range on(t, standby.URL(), Config{}).look(t, name) {
			if f.Level >= Warning {
				t.Errorf("%+v", f)
			}
		}
	}
	d.mend(t, admin, d.finds(t, "sync", Warning, "a failover may lose acknowledged messages"))
	d.finds(t, "sync", OK, "a commit waits for 1 standby of 1")
	exec(t, admin, `ALTER SYSTEM SET synchronous_commit = local`, reload)
	d.pool.Reset()
	d.mend(t, admin, d.finds(t, "sync", Warning, "synchronous_commit is local"))

	exec(t, admin, `CREATE ROLE app LOGIN`)
	app := on(t, server.URL()+"&options=-c%20role%3Dapp", Config{})
	for _, name := range []string{"sync", "standbys"} {
		if f := app.finds(t, name, Note, "may not see"); f.Commands[0] != `GRANT pg_monitor TO "app";` {
			t.Errorf("%+v", f)
		}
	}
	if err := standby.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.mend(t, admin, d.finds(t, "sync", Error, "commits wait for ever: 1"))
	d.finds(t, "slots", Warning, "nobody reads slot")
}
