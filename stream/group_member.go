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
	// Name of the member, for display. Defaults to a random name.
	Name string
	// Start is where the group begins if it is new. Defaults to the oldest
	// message that is kept.
	Start Start
	// Lease and Heartbeat configure the member's Coordinator.
	Lease, Heartbeat time.Duration
	// Handle is called with the messages of partition o.Number, in order, one page at a
	// time; partitions are handled concurrently. When it returns nil, the page is
	// processed, and its offset is committed soon. When it returns an error, it is
	// called with the same page again after a back-off of 10 ms to 1 s: store messages
	// that can never be processed elsewhere (dead letters), and return nil.
	//
	// ctx ends, with ErrNotOwner as its cause, when the partition is lost, because
	// PostgreSQL was unavailable for too long: Handle must stop working on it. Handle
	// is not interrupted when the partition is revoked, or when Run's ctx ends: it has
	// to return soon.
	Handle func(ctx context.Context, o *Assignment, page []Message) error
	// Own, in place of Handle, is called for each partition that this member comes to own, in a separate
	// goroutine, and reads and commits by itself: see Owned. When it returns nil, the partition is released; an
	// error ends Run with that error. ctx ends when the partition is revoked or lost, and when Run's ctx ends: Own
	// has to return soon then. The messages that it has not committed go to the next owner.
	Own func(ctx context.Context, p *Owned) error
	// Log receives a line when Handle has failed, or a partition is parked, and
	// those of a Coordinator. Defaults to none.
	Log *slog.Logger
}

// Member is one member of a group that divides the partitions of a stream among its
// members. Each message is delivered to one member, in the order of its partition,
// and again to another one only if that member died, or lost its lease, before the
// offset was committed.
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

// Join returns a member of the stream's group of that name, and creates the group
// in all partitions if it does not exist. The member gets partitions only while its
// Run runs. A stream without partitions counts as one partition, which one of the
// members owns.
//
// Errors: those of Open.
func (gs *Groups) Join(ctx context.Context, h *Hub, s *Stream, group string, cfg MemberConfig) (*Member, error) {
	if (cfg.Handle == nil) == (cfg.Own == nil) {
		return nil, fmt.Errorf("%w member: want either Handle or Own", ErrInvalid)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Member{cfg: cfg, groups: gs, hub: h, stream: s, group: group}
	n := max(s.count, 1)
	for i := range n { // now, because Start may be AtEnd
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

// Run reads, and calls Handle, until ctx ends. Then it waits for the pages that are
// being handled, commits their offsets and leaves, so that other members can
// continue from there at once. It needs Groups.Run and Hub.Run. Call it once.
//
// A partition is parked if the stream's retention has dropped its next messages:
// its owner keeps it, logs that, and checks every Heartbeat whether Group.Seek, on
// the group of that partition, has set where to continue. The other partitions do
// not wait for it.
//
// While PostgreSQL is unavailable it waits. Errors: those of Coordinator.Run, and
// of Subscription.Next. Before it returns one it commits the offsets of handled
// pages.
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

// own reads one partition as long as this member owns it.
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
	err := m.work(ctx, reading, o)
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

// work reads the partition until reading ends, or fails.
func (m *Member) work(ctx, reading context.Context, o *Assignment) error {
	if m.cfg.Own == nil {
		return m.consumeOrPark(ctx, reading, o)
	}
	g, err := m.openGroup(reading, o.Number)
	if err == nil {
		err = m.cfg.Own(reading, &Owned{Assignment: o, group: g, hub: m.hub})
	}
	if reading.Err() != nil {
		return nil
	}
	return err
}

// consumeOrPark is consume, but it keeps a partition whose next messages are
// dropped, and reads nothing there, until the group's offset is moved: if it
// released the partition, each next owner would fail in turn.
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
			m.cfg.Log.Error("partition parked until Seek sets the group's offset", "group", m.group,
				"stream", m.stream.name, "partition", o.Number, "error", err)
		}
		select {
		case <-time.After(m.share.cfg.Heartbeat):
		case <-reading.Done():
			return nil
		}
	}
}

// consume gives the pages of a partition to Handle until reading ends, starting
// after the offset that the previous owner has committed. In all cases it commits
// the offset of the handled pages at its end: the next owner begins there.
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

// open subscribes after the committed offset; it waits while PostgreSQL is
// unavailable.
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

// handle calls Handle with the page until it returns nil, and reports whether the
// partition was still owned then. Between two attempts the partition can be
// released.
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

// MemberInfo describes a member: see Stream.Members.
type MemberInfo struct {
	Name string
	// Until is when its lease ends without a further heartbeat, by PostgreSQL's
	// clock.
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
