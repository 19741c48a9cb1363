package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/pg"
)

const (
	// makeAtOnce is how many partitions one transaction creates: each takes a dozen
	// locks, and PostgreSQL has room for 6,400 by default.
	makeAtOnce = 64
	// partitionSuffix is the length of the longest "/<number>".
	partitionSuffix = 5

	// Raised by the SQL functions: codeOptions for a name that exists with other
	// options, or a different number of things; codePartition for a partition where
	// the whole stream is required.
	codeOptions   = "TW006"
	codePartition = "TW007"
)

// ensurePartitioned returns the stream of that name with all its partitions. It
// continues where an earlier call that failed has stopped.
func ensurePartitioned(ctx context.Context, pool *pgxpool.Pool, name string, opts Options) (*Stream, error) {
	if opts.Partitions < 0 || opts.Partitions > MaxPartitions {
		return nil, fmt.Errorf("%w stream partitions: %d, want 0 to %d", ErrInvalid, opts.Partitions, MaxPartitions)
	}
	if len(name) > MaxName-partitionSuffix {
		return nil, fmt.Errorf("%w stream name: %d bytes, want at most %d with partitions", ErrInvalid, len(name), MaxName-partitionSuffix)
	}
	for failed := 0; ; failed++ {
		s := &Stream{pool: pool}
		err := s.makeWhole(ctx, name, opts)
		if errors.Is(err, ErrNotFound) && pg.Backoff(ctx, failed) == nil {
			continue // dropped meanwhile
		}
		if code := pg.Code(err); code == codeOptions || code == pg.CodeUniqueViolation {
			err = fmt.Errorf("%w: %w", ErrExists, err)
		}
		if err != nil {
			return nil, fmt.Errorf("ensure stream %q: %w", name, err)
		}
		return s, nil
	}
}

// makeWhole finds or creates the stream, and the partitions that it lacks. If it
// was being dropped, makeWhole completes the drop, and the error is ErrNotFound.
func (s *Stream) makeWhole(ctx context.Context, name string, opts Options) error {
	err := inReadCommitted(ctx, s.pool, ensurePartitionedSQL, []any{name, opts.Keyed, opts.Partitions, opts.OwnTables}, s.collect)
	if err != nil {
		return err
	}
	if s.phase != "dropping" {
		err = s.checkOptions(opts)
	}
	for err == nil && s.phase == "making" {
		err = inReadCommitted(ctx, s.pool, makePartitionsSQL, []any{s.id, makeAtOnce}, scanOne(&s.phase))
	}
	if err == nil && s.phase == "dropping" {
		if err = dropPartitions(ctx, s.pool, s.id); err == nil {
			err = ErrNotFound
		}
	}
	if err != nil {
		return err
	}
	return s.loadPartitions(ctx)
}

// loadPartitions reads the partitions, if the stream has any. If some are
// missing, the stream is being dropped.
func (s *Stream) loadPartitions(ctx context.Context) error {
	if s.count == 0 {
		return nil
	}
	rows, err := s.pool.Query(ctx, partitionsSQL, s.id)
	if err != nil {
		return err
	}
	s.parts, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Stream, error) {
		p := &Stream{pool: s.pool}
		return p, p.scan(row)
	})
	if err == nil && len(s.parts) < s.count {
		err = ErrNotFound
	}
	return err
}

// dropPartitions completes a drop of a stream with partitions that has begun, from
// the last partition down.
func dropPartitions(ctx context.Context, pool *pgxpool.Pool, id int32) error {
	for gone := false; !gone; {
		var last *string
		err := pool.QueryRow(ctx, lastPartitionSQL, id).Scan(&last)
		if err == nil && last != nil {
			err = dropOldest(ctx, pool, *last)
		}
		if err == nil {
			gone, err = drop(ctx, pool, dropPartitionSQL, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// explainPartition maps codePartition to ErrPartition.
func explainPartition(err error) error {
	if pg.Code(err) == codePartition {
		return fmt.Errorf("%w: %w", ErrPartition, err)
	}
	return err
}

// appendTxPartitioned sends each message to its partition: the caller's transaction
// keeps them atomic.
func appendTxPartitioned(ctx context.Context, tx pgx.Tx, s *Stream, msgs []Message) error {
	keyless := rand.IntN(s.count)
	to := make(map[int][]Message)
	for _, m := range msgs {
		p := keyless
		if m.Key != "" {
			p = s.PartitionOf(m.Key)
		}
		to[p] = append(to[p], m)
	}
	for p, msgs := range to {
		if err := appendTx(ctx, tx, s.parts[p], msgs); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) sumInfo(ctx context.Context) (sum Info, err error) {
	for _, p := range s.parts {
		info, err := p.Info(ctx)
		if err != nil {
			return Info{}, err
		}
		sum.Head += info.Head
		sum.Segments += info.Segments
		sum.Bytes += info.Bytes
	}
	sum.Retention, err = s.Retention(ctx)
	return sum, err
}

// sumGroups adds up the groups of the partitions. limit is enough for each
// partition, since the first groups overall are among the first of each.
func (s *Stream) sumGroups(ctx context.Context, after string, limit int) ([]GroupInfo, error) {
	sums := make(map[string]GroupInfo)
	for _, p := range s.parts {
		groups, err := p.GroupsAfter(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			sum, found := sums[g.Name]
			if found && sum.CreatedAt.Before(g.CreatedAt) {
				g.CreatedAt = sum.CreatedAt
			}
			g.Offset += sum.Offset
			g.Lag += sum.Lag
			sums[g.Name] = g
		}
	}
	all := slices.SortedFunc(maps.Values(sums), func(a, b GroupInfo) int { return cmp.Compare(a.Name, b.Name) })
	return all[:min(limit, len(all))], nil
}

func (s *Stream) dropGroups(ctx context.Context, name string) error {
	dropped := false
	for _, p := range s.parts {
		err := p.DropGroup(ctx, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		dropped = dropped || err == nil
	}
	if !dropped {
		return fmt.Errorf("drop group %q of stream %q: %w", name, s.name, ErrNotFound)
	}
	return nil
}
