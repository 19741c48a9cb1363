package standby

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// probeEvery is the interval between probes while the standby is read. After a failure the next probe comes after leastPause,
	// which doubles with each further failure up to mostPause (exponential back-off).
	probeEvery = 5 * time.Second
	leastPause = time.Second
	mostPause  = 30 * time.Second
	// probeTimeout bounds one probe.
	probeTimeout = time.Second

	primarySQL = `SELECT tidewire.system_identifier(), pg_sequence_last_value('tidewire.history_seq')`
	standbySQL = primarySQL + `, pg_is_in_recovery()`
)

// errPrimary: the probe says nothing about the standby.
var errPrimary = errors.New("standby: the primary does not answer")

// watch probes the standby periodically, until ctx ends.
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

// probe checks whether the standby can be read, and updates the breaker.
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
	var system *int64 // nil where the role may not read it
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

// identify returns why a new connection cannot be used, or nil.
func (r *Reader) identify(ctx context.Context, conn *pgx.Conn) error {
	_, err := r.ask(ctx, conn)
	return err
}

// ask returns the history of the standby, or an error if the server is not a standby of the
// primary.
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
