package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidewire/tidewire/internal/pg"
)

// MemberConfig configures a Member.
type MemberConfig struct {
	// Name of the member, for whoever looks. Defaults to a random name.
	Name string
	// Start is where the group begins if it is new. Defaults to the oldest
	// message that is kept.
	Start Start
	// Lease and Heartbeat are those of a Coordinator.
	Lease, Heartbeat time.Duration
	// Handle is given the messages of the partition that o.Number is, in order, one
	// page at a time: different partitions at the same time. When it returns nil, the
	// page is dealt with, and its offset is committed soon. When it returns an error, it
	// gets the same page again after a pause, of 10 ms first and 1 s at most: what
	// can never be dealt with is to be put elsewhere, and nil returned.
	//
	// ctx ends, with ErrNotOwner as its cause, when the partition is lost, because
	// PostgreSQL was away for too long: nothing may be done for it any more.
	// Handle is not interrupted when the partition is to be given back, or Run's
	// ctx ends: it has to return soon by itself.
	Handle func(ctx context.Context, o *Assignment, page []Message) error
	// Log receives a line when Handle has failed, or a partition is parked, and
	// those of a Coordinator. Defaults to none.
	Log *slog.Logger
}

// Member is one of a group that shares out the partitions of a stream. Each
// message is given to one member, in the order of its partition, and to another
// one again only if that member died, or lost its lease, before the offset was
// committed.
type Member struct {
	cfg    MemberConfig
	groups *Groups
	hub    *Hub
	stream *Stream
	group  string
	share  *Coordinator

	mu     sync.Mutex // guards the fields below
	err    error      // why Run has to end
	cancel context.CancelFunc
}

// Join returns a member of the stream's group of that name, and makes the group
// in all partitions if there is none. It takes part while its Run lasts. An
// ordinary stream is one partition, which one of the members has.
//
// Errors: those of Open.
func (gs *Groups) Join(ctx context.Context, h *Hub, s *Stream, group string, cfg MemberConfig) (*Member, error) {
	if cfg.Handle == nil {
		return nil, fmt.Errorf("%w member: want Handle", ErrInvalid)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Member{cfg: cfg, groups: gs, hub: h, stream: s, group: group}
	n := max(s.count, 1)
	for i := range n { // now, for Start may mean this moment
		if _, err := gs.Open(ctx, s.Partition(i), group, GroupOptions{Start: cfg.Start}); err != nil {
			return nil, err
		}
	}
	var err error
	m.share, err = NewCoordinator(gs.pool, CoordinatorConfig{
		Name: shareName(s, group), Numbers: n, Member: cfg.Name, Stream: s,
		Lease: cfg.Lease, Heartbeat: cfg.Heartbeat, Own: m.own, Log: cfg.Log,
	})
	return m, err
}

func shareName(s *Stream, group string) string { return fmt.Sprintf("group %d %s", s.id, group) }

// Run reads, and calls Handle, until ctx ends. Then it waits for the pages that
// are being handled, commits their offsets and leaves, so that other members go
// on from there at once. It needs Groups.Run and Hub.Run. Call it once.
//
// A partition in which the stream's retention has dropped what comes next is
// parked: its owner keeps it, logs that, and looks every Heartbeat whether
// Group.Seek, on the group of that partition, has said where the group goes on.
// The other partitions do not wait for it.
//
// While PostgreSQL is away it waits. Errors: those of Coordinator.Run, and of
// Subscription.Next. Before it returns one it commits what was handled.
func (m *Member) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.cancel = cancel
	m.mu.Unlock()
	err := m.share.Run(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		err = m.err
	}
	if err != nil {
		return fmt.Errorf("member of group %q of stream %q: %w", m.group, m.stream.name, err)
	}
	return nil
}

// own reads one partition for as long as it is owned.
func (m *Member) own(ctx context.Context, o *Assignment) {
	reading, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-o.Revoked():
			stop()
		case <-reading.Done():
		}
	})
	err := m.consumeOrPark(ctx, reading, o)
	stop()
	watching.Wait()
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
	}
	m.cancel()
}

// consumeOrPark is consume that keeps a partition whose next messages are gone,
// and reads nothing there, until the group's offset was moved: given back, it
// would stop the next owner, and then the one after that.
func (m *Member) consumeOrPark(ctx, reading context.Context, o *Assignment) error {
	var known TooOldError
	for {
		err := m.consume(ctx, reading, o)
		var tooOld *TooOldError
		if !errors.As(err, &tooOld) {
			return err
		}
		if *tooOld != known {
			known = *tooOld
			m.cfg.Log.Error("partition parked, until Seek says where the group goes on", "group", m.group,
				"stream", m.stream.name, "partition", o.Number, "error", err)
		}
		select {
		case <-time.After(m.share.cfg.Heartbeat):
		case <-reading.Done():
			return nil
		}
	}
}

// consume gives the pages of a partition to Handle until reading ends, after
// the offset that the owner before has committed. However it ends, what was
// handled is committed: the next owner begins there.
func (m *Member) consume(ctx, reading context.Context, o *Assignment) error {
	g, sub, err := m.open(reading, o.Number)
	if reading.Err() != nil {
		err = nil
	}
	if err != nil || sub == nil {
		return err
	}
	defer sub.Close()
	last := int64(0)
	for {
		var page []Message
		if page, err = sub.Next(reading); err != nil || !m.handle(ctx, reading, o, page) {
			break
		}
		last = page[len(page)-1].Position
		m.groups.commitLater(ownedOffset{g.id, o.Token}, last)
	}
	if reading.Err() != nil {
		err = nil
	}
	if last > 0 && o.Valid() {
		if _, err := g.CommitOwned(ctx, o.Token, last); err != nil {
			m.cfg.Log.Warn("offset not committed", "group", m.group, "stream", g.stream.name, "error", err)
		}
	}
	return err
}

// open subscribes after the committed offset; it waits while PostgreSQL is away.
func (m *Member) open(ctx context.Context, partition int) (*Group, *Subscription, error) {
	for failed := 0; ; failed++ {
		g, err := m.groups.Open(ctx, m.stream.Partition(partition), m.group, GroupOptions{Start: m.cfg.Start})
		if err == nil {
			var sub *Subscription
			if sub, err = g.Subscribe(ctx, m.hub); err == nil {
				return g, sub, nil
			}
		}
		if !pg.Retryable(err) || pg.Backoff(ctx, failed) != nil {
			return nil, nil, err
		}
	}
}

// handle gives the page to Handle until that is content, and tells whether it
// was while the partition was owned. Between two attempts the partition can be
// given back.
func (m *Member) handle(ctx, reading context.Context, o *Assignment, page []Message) bool {
	for failed := 0; ; failed++ {
		if !o.Valid() {
			return false
		}
		err := m.cfg.Handle(ctx, o, page)
		if err == nil {
			return o.Valid()
		}
		if ctx.Err() == nil {
			m.cfg.Log.Warn("messages not handled, trying again", "group", m.group, "stream", m.stream.name,
				"partition", o.Number, "position", page[0].Position, "attempt", failed+1, "error", err)
		}
		if pg.Backoff(reading, failed) != nil {
			return false
		}
	}
}

// MemberInfo is what Stream.Members tells of a member.
type MemberInfo struct {
	Name string
	// Until is when its lease ends if it says nothing, by PostgreSQL's clock.
	Until time.Time
	// Partitions that it owns, in ascending order.
	Partitions []int
}

// Members returns the members that the stream's group of that name has now,
// in the order in which they joined.
func (s *Stream) Members(ctx context.Context, group string) ([]MemberInfo, error) {
	rows, err := s.pool.Query(ctx, listMembersSQL, shareName(s, group))
	if err != nil {
		return nil, s.explain("list members of groups of", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m MemberInfo, err error) {
		return m, row.Scan(&m.Name, &m.Until, &m.Partitions)
	})
	if err != nil {
		return nil, s.explain("list members of groups of", err)
	}
	return all, nil
}
