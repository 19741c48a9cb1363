package stream

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// lease is one membership of a Coordinator, as long as heartbeats renew it.
type lease struct {
	share, member int64
	ctx           context.Context // ends when it is lost
	lose          context.CancelCauseFunc
	timer         *time.Timer // calls lose at the deadline
	deadline      atomic.Pointer[time.Time]
}

func (l *lease) lasts() bool { return l.ctx.Err() == nil && time.Now().Before(*l.deadline.Load()) }

// renew extends the deadline, unless it has passed. The time counts from before the
// query to PostgreSQL, so that the lease ends here earlier than in PostgreSQL.
func (l *lease) renew(asked time.Time, lease time.Duration) bool {
	if !l.lasts() || !l.timer.Stop() {
		return false
	}
	deadline := asked.Add(lease * 4 / 5)
	l.deadline.Store(&deadline)
	l.timer.Reset(time.Until(deadline))
	return true
}

// end ends the lease, if it is not lost already.
func (l *lease) end() {
	l.timer.Stop()
	l.lose(ErrNotOwner)
}

// join registers this process as a member.
func (s *Coordinator) join(ctx context.Context) (*lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Lease)
	defer cancel()
	l := &lease{}
	asked := time.Now()
	var stream *int32
	if s.cfg.Stream != nil {
		stream = &s.cfg.Stream.id
	}
	args := []any{s.cfg.Name, stream, s.cfg.Numbers, s.cfg.Member, s.cfg.Lease}
	err := inReadCommitted(ctx, s.pool, joinShareSQL, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&l.share, &l.member}, func() error { return nil })
		return err
	})
	if err != nil {
		return nil, err
	}
	l.ctx, l.lose = context.WithCancelCause(context.Background())
	deadline := asked.Add(s.cfg.Lease * 4 / 5)
	l.deadline.Store(&deadline)
	l.timer = time.AfterFunc(time.Until(deadline), func() { l.lose(ErrNotOwner) })
	return l, nil
}
