package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

var (
	// ErrAhead: the position is after the last message of the stream. Only Seek
	// goes there.
	ErrAhead = errors.New("stream: position after the end of the stream")
	// ErrIncomplete: the group has no offset, because the database was restored
	// from a backup without it. Seek sets one.
	ErrIncomplete = errors.New("stream: the group's offset is missing from the database; set it with Seek")
)

// codeForeignKey is raised for a group whose stream was dropped.
const codeForeignKey = "23503"

// GroupOptions are the options for creating a group.
type GroupOptions struct {
	// Start is where a new group begins; an existing group keeps its offset.
	// Defaults to the oldest message that is kept.
	Start Start
}

// Group is a named reader of a stream (consumer group): it has an offset, the
// position up to which it has processed the messages. Any number of processes may
// open and commit the same one. Safe for concurrent use.
type Group struct {
	groups *Groups
	stream *Stream
	id     int32
	name   string
}

// GroupInfo describes a group: see Stream.Groups.
type GroupInfo struct {
	Name      string
	Offset    int64
	CreatedAt time.Time
	// Lag is the number of positions from the offset to the last message. At most
	// that many messages are left to read: positions have gaps, and the stream's
	// retention may have dropped some.
	Lag int64
}

// Open returns the stream's group of that name, and creates it if it does not
// exist. The name has 1 to MaxName bytes, valid UTF-8 without NUL; else the error
// is ErrInvalid. It is ErrNotFound if the stream was dropped. In a stream with
// partitions each partition has its own group of that name: use Join for them.
func (gs *Groups) Open(ctx context.Context, s *Stream, name string, opts GroupOptions) (*Group, error) {
	if err := validName("group", name); err != nil {
		return nil, err
	}
	if err := s.checkSingle("open group of"); err != nil {
		return nil, err
	}
	g := &Group{groups: gs, stream: s.through(gs.pool), name: name}
	err := gs.pool.QueryRow(ctx, lookupGroupSQL, s.id, name).Scan(&g.id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = g.make(ctx, opts.Start)
	}
	if err != nil {
		return nil, g.explain("open", err)
	}
	return g, nil
}

// make creates the group. If another process has created it meanwhile, it keeps its
// offset.
func (g *Group) make(ctx context.Context, start Start) error {
	after, err := start.resolve(ctx, g.stream)
	if err != nil {
		return err
	}
	args := []any{g.stream.id, g.name, after, start.adrift()}
	err = inReadCommitted(ctx, g.groups.pool, ensureGroupSQL, args, scanOne(&g.id))
	if pg.Code(err) == codeForeignKey {
		return ErrNotFound
	}
	return err
}

// Groups returns the groups of the stream, ordered by the bytes of their names;
// none if the stream was dropped meanwhile. For a stream with partitions the
// offsets and lags are the sums over the partitions.
func (s *Stream) Groups(ctx context.Context) ([]GroupInfo, error) {
	return s.GroupsAfter(ctx, "", math.MaxInt32)
}

// GroupsAfter is Groups in pages: it returns at most limit of the groups whose
// names sort after name; "" is before all names.
func (s *Stream) GroupsAfter(ctx context.Context, name string, limit int) ([]GroupInfo, error) {
	if s.count > 0 {
		return s.sumGroups(ctx, name, limit)
	}
	var all []GroupInfo
	err := inReadCommitted(ctx, s.pool, listGroupsSQL, []any{s.id, name, limit}, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g GroupInfo, err error) {
			var offset *int64
			if err = row.Scan(&g.Name, &g.CreatedAt, &offset); err == nil && offset == nil {
				return g, fmt.Errorf("group %q: %w", g.Name, ErrIncomplete)
			}
			if err == nil {
				g.Offset = *offset
			}
			return g, err
		})
		return err
	})
	if err != nil {
		return nil, s.explain("list groups of", err)
	}
	head, err := s.Head(ctx)
	if err != nil {
		return nil, err
	}
	gaps, err := s.Gaps(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Lag = Between(all[i].Offset+1, head, gaps)
	}
	return all, nil
}

// DropGroup removes the stream's group of that name, or returns ErrNotFound. In a
// stream with partitions it removes the groups of that name in all partitions.
func (s *Stream) DropGroup(ctx context.Context, name string) error {
	if s.count > 0 {
		return s.dropGroups(ctx, name)
	}
	var id int32
	if err := inReadCommitted(ctx, s.pool, dropGroupSQL, []any{s.id, name}, scanOne(&id)); err != nil {
		return fmt.Errorf("drop group %q of stream %q: %w", name, s.name, err)
	}
	return nil
}

// ID is the number of the group in this database. IDs are never reused.
func (g *Group) ID() int32 { return g.id }

// Stream returns the stream of the group.
func (g *Group) Stream() *Stream { return g.stream }

// Name returns the name of the group.
func (g *Group) Name() string { return g.name }

// Offset returns the committed offset.
func (g *Group) Offset(ctx context.Context) (int64, error) {
	var offset *int64
	err := inReadCommitted(ctx, g.groups.pool, readOffsetSQL, []any{g.id}, scanOne(&offset))
	if err == nil && offset == nil {
		err = ErrIncomplete
	}
	if err != nil {
		return 0, g.explain("read offset of", err)
	}
	return *offset, nil
}

// Commit moves the offset forward to the position, and returns the offset once that is committed. If
// another process or a Seek has moved it higher already, nothing is written and Commit returns the higher
// offset. It waits while PostgreSQL is unavailable, and needs Groups.Run.
//
// Errors: ErrInvalid for a negative position; ErrAhead; ErrNotFound for a group
// that was dropped; ErrIncomplete; ErrClosed. If ctx ends first, or with ErrOutcomeUnknown, the offset may
// be committed or not.
func (g *Group) Commit(ctx context.Context, position int64) (offset int64, err error) {
	offset, err = g.groups.commit(ctx, ownedOffset{group: g.id}, position)
	if err != nil {
		return 0, g.explain("commit offset of", err)
	}
	return offset, nil
}

// CommitLater is Commit without a guarantee: it returns at once, and the position
// is written with other commits within GroupsConfig.LaterEvery, if nothing fails. A
// position lower than an earlier one has no effect, unless a Seek came between.
func (g *Group) CommitLater(position int64) { g.groups.commitLater(ownedOffset{group: g.id}, position) }

// CommitOwned is Commit for the owner of the partition that the group reads, with
// the fencing token of its Assignment. Once there is another owner, nothing is
// committed, and the error is ErrNotOwner, as it is when the group was dropped.
// Only if an answer of PostgreSQL was lost, an earlier attempt may have committed
// the offset.
func (g *Group) CommitOwned(ctx context.Context, token, position int64) (offset int64, err error) {
	offset, err = g.groups.commit(ctx, ownedOffset{g.id, token}, position)
	if err != nil {
		return 0, g.explain("commit offset of", err)
	}
	return offset, nil
}

// Seek sets the offset to any position, and returns once that is committed. It
// replaces the committed offset, and the positions that this process was still to
// commit. Readers of the group continue at their own positions, and move the offset
// with their next commit. Waiting and errors are as with Commit.
func (g *Group) Seek(ctx context.Context, position int64) error {
	if err := g.groups.seek(ctx, g.id, position); err != nil {
		return g.explain("seek", err)
	}
	return nil
}

// Subscribe returns a Subscription to the group's stream that begins after the
// committed offset. Several subscriptions of one group each get all messages; use a
// queue, or Join, to divide them. If the stream's retention has dropped messages
// after the offset, Next fails with a TooOldError: use Seek to set where to
// continue.
func (g *Group) Subscribe(ctx context.Context, h *Hub) (*Subscription, error) {
	offset, err := g.Offset(ctx)
	if err != nil {
		return nil, err
	}
	return h.Subscribe(ctx, g.stream, After(offset))
}

func (g *Group) explain(what string, err error) error {
	return fmt.Errorf("%s group %q of stream %q: %w", what, g.name, g.stream.name, err)
}

// lockWait bounds the waits for locks that are never held for long.
const lockWait = 10 * time.Second

// inReadCommitted runs one query in a READ COMMITTED transaction, independent of the
// database's defaults, in one round trip. The rows that collect got are valid only
// if the error is nil: otherwise the transaction may not be committed.
func inReadCommitted(ctx context.Context, pool *pgxpool.Pool, sql string, args []any, collect func(pgx.Rows) error) error {
	var b pgx.Batch
	b.Queue(beginSQL)
	b.Queue(pg.WriterSettings(lockWait))
	b.Queue(sql, args...).Query(collect)
	b.Queue(commitSQL)
	return pg.SendBatch(ctx, pool, &b)
}

// scanOne collects the one value of a query, and fails with ErrNotFound if
// there is none.
func scanOne(dst any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found := false
		_, err := pgx.ForEachRow(rows, []any{dst}, func() error { found = true; return nil })
		if err == nil && !found {
			err = ErrNotFound
		}
		return err
	}
}
