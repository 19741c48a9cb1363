package standby

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// probeEvery is how often the standby is looked at while it is read. After a failure it is looked at after leastPause, and after twice
	// as long each further time, up to mostPause.
	probeEvery = 5 * time.Second
	leastPause = time.Second
	mostPause  = 30 * time.Second
	// probeTimeout bounds one look.
	probeTimeout = time.Second

	primarySQL = `SELECT tidewire.system_identifier(), pg_sequence_last_value('tidewire.history_seq')`
	standbySQL = primarySQL + `, pg_is_in_recovery()`
)

// errPrimary: nothing is known of the standby then.
var errPrimary = errors.New("standby: the primary does not answer")

// watch looks at the standby again and again, until ctx ends.
func (r *Reader) watch(ctx context.Context) {
	pause := leastPause
	timer := time.NewTimer(probeEvery)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if r.probe(ctx) == nil {
				pause = leastPause
				timer.Reset(probeEvery)
			} else {
				timer.Reset(pause)
				pause = min(2*pause, mostPause)
			}
		case <-r.failures:
			pause = leastPause
			timer.Reset(pause)
		case <-ctx.Done():
			return
		}
	}
}

// probe looks whether the standby can be read, and has that be known.
func (r *Reader) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := r.look(ctx)
	switch {
	case err == nil:
		r.breaker.succeed(false)
	case !errors.Is(err, errPrimary):
		r.failed(err)
	}
	return err
}

// look returns why the standby cannot be read, or nil.
func (r *Reader) look(ctx context.Context) error {
	var system *int64 // nil where nobody may look
	var history int64
	if err := r.primary.QueryRow(ctx, primarySQL).Scan(&system, &history); err != nil {
		return fmt.Errorf("%w: %w", errPrimary, err)
	}
	if system != nil {
		r.system.Store(*system)
	}
	conn, err := r.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	there, err := r.ask(ctx, conn.Conn())
	if err == nil && there < history {
		err = ErrHistory
	}
	return err
}

// identify returns why a new connection is of no use, or nil.
func (r *Reader) identify(ctx context.Context, conn *pgx.Conn) error {
	_, err := r.ask(ctx, conn)
	return err
}

// ask returns the history of a standby of the primary.
func (r *Reader) ask(ctx context.Context, conn *pgx.Conn) (history int64, err error) {
	var system *int64
	var recovers bool
	if err := conn.QueryRow(ctx, standbySQL).Scan(&system, &history, &recovers); err != nil {
		return 0, err
	}
	switch ours := r.system.Load(); {
	case ours != 0 && system != nil && *system != ours:
		return 0, errOtherCluster
	case !recovers:
		return 0, errNoStandby
	}
	return history, nil
}
