package stream

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// membership is a lease with the numbers owned under it. Only the loop of keep uses
// it.
type membership struct {
	*Coordinator
	lease    *lease
	owned    map[int64]*Assignment // by token; removed when Own has returned
	released []int64               // tokens to be released with the next heartbeat
	quota    int
	leaving  bool
}

// keep renews a lease until ctx ends, and then leaves; or until the lease is lost,
// and returns ErrNotOwner. When it returns, all calls of Own have returned.
func (s *Coordinator) keep(ctx context.Context, l *lease) error {
	m := &membership{Coordinator: s, lease: l, owned: make(map[int64]*Assignment)}
	defer l.end()
	err := m.run(ctx)
	if err != nil {
		l.end()
	}
	for len(m.owned) > 0 {
		m.release(<-s.returned)
	}
	m.leave()
	return err
}

func (m *membership) run(ctx context.Context) error {
	next := time.NewTimer(0)
	defer next.Stop()
	stopped := ctx.Done()
	for {
		select {
		case <-next.C:
		case o := <-m.returned:
			m.release(o)
			if !o.wanted {
				continue // Own returned unasked: the number would come back at once
			}
		case <-stopped:
			stopped, m.leaving = nil, true
			m.ask(len(m.owned))
		case <-m.lease.ctx.Done():
			return ErrNotOwner
		}
		if m.leaving && len(m.owned) == 0 {
			return nil
		}
		err := m.beat()
		if err != nil && !pg.Retryable(err) {
			return err
		}
		if err != nil {
			m.cfg.Log.Warn("heartbeat failed, trying again", "share", m.cfg.Name, "member", m.cfg.Member, "error", err)
		}
		next.Reset(m.pause(err != nil))
	}
}

// pause is the time until the next heartbeat.
func (m *membership) pause(failed bool) time.Duration {
	every := m.cfg.Heartbeat
	if failed || len(m.owned) != m.quota {
		every /= 4
	}
	return every*9/10 + rand.N(every/5+1)
}

// leastBeat is the minimum timeout of a heartbeat: tidewire.beat_share may wait for
// half a second, and still renews the lease.
const leastBeat = time.Second

// beat is one heartbeat: it renews the lease, releases numbers, and starts Own for
// new ones. Its timeout leaves time for more attempts on another connection,
// because this one may be silently dead.
func (m *membership) beat() error {
	asked := time.Now()
	var alive bool
	var quota *int32
	var numbers []int32
	var tokens []int64
	args := []any{m.lease.share, m.lease.member, m.cfg.Lease, m.released, m.leaving}
	ctx, cancel := context.WithTimeout(m.lease.ctx, max(m.cfg.Lease/5, leastBeat))
	defer cancel()
	err := inReadCommitted(ctx, m.pool, beatShareSQL, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&alive, &quota, &numbers, &tokens}, func() error { return nil })
		return err
	})
	switch {
	case m.lease.ctx.Err() != nil:
		return ErrNotOwner
	case err != nil:
		return fmt.Errorf("heartbeat: %w", err)
	case !alive || !m.lease.renew(asked, m.cfg.Lease):
		return ErrNotOwner
	}
	if quota != nil {
		m.released, m.quota = nil, int(*quota)
	}
	for i, token := range tokens {
		if m.owned[token] == nil && !m.leaving && !slices.Contains(m.released, token) {
			m.start(int(numbers[i]), token)
		}
	}
	m.ask(m.kept() - m.quota)
	return nil
}

// kept counts the numbers that are not revoked.
func (m *membership) kept() (n int) {
	for _, o := range m.owned {
		if !o.wanted {
			n++
		}
	}
	return n
}

// ask revokes the n highest numbers that are not revoked yet.
func (m *membership) ask(n int) {
	var free []*Assignment
	for _, o := range m.owned {
		if !o.wanted {
			free = append(free, o)
		}
	}
	slices.SortFunc(free, func(a, b *Assignment) int { return cmp.Compare(b.Number, a.Number) })
	for _, o := range free[:min(max(n, 0), len(free))] {
		o.wanted = true
		close(o.asked)
	}
}

func (m *membership) start(number int, token int64) {
	o := &Assignment{Number: number, Token: token, lease: m.lease, asked: make(chan struct{})}
	m.owned[token] = o
	go func() { // keep waits for this goroutine
		m.cfg.Own(m.lease.ctx, o)
		m.returned <- o
	}()
}

// release notes that Own has returned.
func (m *membership) release(o *Assignment) {
	delete(m.owned, o.Token)
	m.released = append(m.released, o.Token)
}

// leave ends the membership in PostgreSQL, also a lost one, so that other members
// need not wait for its end. If it fails, the lease expires.
func (m *membership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Lease/5)
	defer cancel()
	for failed := 0; ; failed++ {
		err := inReadCommitted(ctx, m.pool, leaveShareSQL, []any{m.lease.share, m.lease.member}, func(rows pgx.Rows) error {
			rows.Close()
			return rows.Err()
		})
		if err == nil {
			return
		}
		if pg.Code(err) == pg.CodeLockNotAvailable && pg.Backoff(ctx, failed) == nil {
			continue
		}
		m.cfg.Log.Warn("leaving the share failed; its numbers are free when the lease ends", "share", m.cfg.Name, "member", m.cfg.Member, "error", err)
		return
	}
}
