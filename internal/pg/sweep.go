package pg

import (
	"context"
	"time"
)

const (
	// SweepEvery is how often a process looks for batch marks (dedup rows) whose writers have ended.
	SweepEvery = time.Hour
	// sweepBlocks is how many blocks of the table one transaction scans: some 9,000 marks.
	sweepBlocks = 64
	// sweepTimeout bounds one such query.
	sweepTimeout = 30 * time.Second
)

// sweepMarksSQL deletes old marks from blocks $1 to $2 - 1 of the table, unless another process sweeps.
const sweepMarksSQL = `
WITH alone AS MATERIALIZED (
	SELECT pg_try_advisory_xact_lock(1953064037, 4) AS got
), gone AS (
	DELETE FROM tidewire.batch WHERE (SELECT got FROM alone)
		AND ctid >= ('(' || $1::bigint || ',0)')::tid AND ctid < ('(' || $2::bigint || ',0)')::tid
		AND created_at < now() - interval '1 day'
)
SELECT got, pg_relation_size('tidewire.batch') / current_setting('block_size')::bigint FROM alone`

// SweepBatches deletes the batch marks that writers have left behind when they ended. It
// scans each block of the table once, because no index can find these marks, and stops
// if another process is sweeping.
func SweepBatches(ctx context.Context, db DB) error {
	for block, end := int64(0), int64(1); block < end; block += sweepBlocks {
		alone, err := false, error(nil)
		if alone, end, err = sweepSlice(ctx, db, block); err != nil || !alone {
			return err
		}
	}
	return nil
}

// sweepSlice sweeps some blocks. It also returns how many blocks the table has.
func sweepSlice(ctx context.Context, db DB, block int64) (alone bool, blocks int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	err = db.QueryRow(ctx, sweepMarksSQL, block, block+sweepBlocks).Scan(&alone, &blocks)
	return alone, blocks, err
}
