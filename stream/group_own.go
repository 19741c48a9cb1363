package stream

import (
	"context"

	"github.com/tidewire/tidewire/internal/pg"
)

// Owned is a partition that a Member owns, for MemberConfig.Own. Number is the partition. Safe for concurrent
// use.
type Owned struct {
	*Assignment
	group *Group
	hub   *Hub
}

// Subscribe returns a Subscription to the partition that begins after the group's committed offset: what the
// previous owner has not committed comes again. It must be closed. While PostgreSQL is unavailable it waits.
// Errors: ctx's own, and those of Group.Subscribe. If retention has dropped the next messages, TryNext and Next
// fail with a TooOldError: commit where to continue, and subscribe again.
func (p *Owned) Subscribe(ctx context.Context) (*Subscription, error) {
	for failed := 0; ; failed++ {
		sub, err := p.group.Subscribe(ctx, p.hub)
		if err == nil || !pg.Retryable(err) || pg.Backoff(ctx, failed) != nil {
			return sub, err
		}
	}
}

// Commit is Group.CommitOwned with the token of this ownership.
func (p *Owned) Commit(ctx context.Context, position int64) (offset int64, err error) {
	return p.group.CommitOwned(ctx, p.Token, position)
}

// CommitLater is Commit without a guarantee: it returns at once, and the position is written with other commits
// within GroupsConfig.LaterEvery, if nothing fails and the partition still has this owner then.
func (p *Owned) CommitLater(position int64) {
	p.group.groups.commitLater(ownedOffset{p.group.id, p.Token}, position)
}

// openGroup opens the group of a partition; it waits while PostgreSQL is unavailable.
func (m *Member) openGroup(ctx context.Context, partition int) (*Group, error) {
	for failed := 0; ; failed++ {
		g, err := m.groups.Open(ctx, m.stream.Partition(partition), m.group, GroupOptions{Start: m.cfg.Start})
		if err == nil || !pg.Retryable(err) || pg.Backoff(ctx, failed) != nil {
			return g, err
		}
	}
}
