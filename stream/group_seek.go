package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// SeekGroup sets the offset of the stream's group of that name to where a reader would begin, also backwards, and
// returns it once that is committed. It is for operators, and needs no Groups. In a stream with partitions it does so in
// all partitions that have a group of that name, and returns the sum of the offsets; After needs one partition,
// or the error is ErrPartitioned.
//
// Running readers of the group are not told: they continue at their own positions, and if such a position is higher,
// their next commit moves the offset there again. So stop them first, or start them again afterwards and seek once
// more: a reader that begins takes the offset as it is then. A Member takes it also when it gets a partition, or
// while the partition is parked.
//
// Errors: ErrNotFound if there is no such group, or the stream was dropped; for After, a TooOldError if retention
// has dropped messages after the position, and a HistoryLostError if it is after the end, or a failover has lost it.
func (s *Stream) SeekGroup(ctx context.Context, name string, to Start) (offset int64, err error) {
	if err := validName("group", name); err != nil {
		return 0, err
	}
	if s.count == 0 {
		return s.seekGroup(ctx, name, to)
	}
	if to.kind == startAfter {
		return 0, s.checkSingle("seek in")
	}
	found := false
	for _, p := range s.parts {
		one, err := p.seekGroup(ctx, name, to)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		offset, found = offset+one, true
	}
	if !found {
		return 0, fmt.Errorf("seek group %q of stream %q: %w", name, s.name, ErrNotFound)
	}
	return offset, nil
}

func (s *Stream) seekGroup(ctx context.Context, name string, to Start) (offset int64, err error) {
	var id int32
	err = s.pool.QueryRow(ctx, lookupGroupSQL, s.id, name).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err == nil {
		offset, err = s.seekable(ctx, to)
	}
	var found bool
	if err == nil {
		err = inReadCommitted(ctx, s.pool, seekOffsetSQL, []any{id, offset}, scanOne(&found))
	}
	if err == nil && !found { // dropped meanwhile
		err = ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("seek group %q of stream %q: %w", name, s.name, err)
	}
	return offset, nil
}

// seekable returns the position after which to begin, if reading can begin there.
func (s *Stream) seekable(ctx context.Context, to Start) (int64, error) {
	after, err := to.resolve(ctx, s)
	if err != nil || to.kind != startAfter {
		return after, err
	}
	oldest, err := s.Oldest(ctx)
	if err != nil {
		return 0, err
	}
	if after < oldest-1 {
		return 0, &TooOldError{Oldest: oldest}
	}
	return after, s.Check(ctx, after)
}
