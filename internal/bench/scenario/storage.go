package scenario

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shirou/gopsutil/v4/disk"
)

func cores() int { return runtime.NumCPU() }

// storage is what PostgreSQL stores at one moment.
type storage struct {
	wal        int64 // bytes ever written
	tables     int64 // bytes of user tables, without indexes
	indexes    int64
	deadTuples int64
	diskWrites uint64 // of this machine's disks; 0 if unknown
}

// The sizes cover all user tables. Dead tuples also include those of the
// catalogue, since a strategy may cause them there.
const storageSQL = `
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
  (SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint FROM pg_stat_user_tables),
  (SELECT coalesce(sum(pg_indexes_size(relid)), 0)::bigint FROM pg_stat_user_tables),
  (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_all_tables)`

func readStorage(ctx context.Context, pool *pgxpool.Pool) (s storage, err error) {
	if err := pool.QueryRow(ctx, storageSQL).Scan(&s.wal, &s.tables, &s.indexes, &s.deadTuples); err != nil {
		return s, fmt.Errorf("measure the tables: %w", err)
	}
	if disks, err := disk.IOCountersWithContext(ctx); err == nil {
		for _, d := range disks {
			s.diskWrites += d.WriteCount
		}
	}
	return s, nil
}

// metrics adds what has been stored since before.
func (s storage) metrics(before storage, took time.Duration, messages int, m map[string]float64) {
	if messages > 0 {
		m["wal_bytes_per_message"] = float64(s.wal-before.wal) / float64(messages)
		m["table_bytes_per_message"] = float64(s.tables-before.tables) / float64(messages)
		m["index_bytes_per_message"] = float64(s.indexes-before.indexes) / float64(messages)
	}
	m["index_bytes"] = float64(s.indexes)
	m["dead_tuples"] = float64(s.deadTuples)
	if s.diskWrites > before.diskWrites {
		m["disk_writes_per_second"] = float64(s.diskWrites-before.diskWrites) / took.Seconds()
	}
}

// tuneVacuum gives every table of the textbook strategies the usual settings
// for a table that changes often.
func tuneVacuum(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
DO $$
DECLARE
	t regclass;
BEGIN
	FOR t IN SELECT relid FROM pg_stat_user_tables WHERE schemaname = 'tidewire_bench' LOOP
		EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
			autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.1)', t);
	END LOOP;
END
$$`)
	if err != nil {
		return fmt.Errorf("tune autovacuum: %w", err)
	}
	return nil
}
