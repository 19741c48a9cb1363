package queue

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// DeadFilter selects dead letters: those to which everything applies that is set. The zero value selects all.
type DeadFilter struct {
	// Key selects the messages with exactly this key.
	Key string
	// Reason selects those whose reason contains this text, in upper or lower case.
	Reason string
	// MinAttempts and MaxAttempts select by how often the message was delivered.
	MinAttempts, MaxAttempts int
	// Since and Before select by DeadLetter.Died: at Since or later, and before Before.
	Since, Before time.Time
}

// matches reports whether everything but the key applies.
func (f *DeadFilter) matches(d *DeadLetter) bool {
	return d.Attempts >= f.MinAttempts && (f.MaxAttempts == 0 || d.Attempts <= f.MaxAttempts) &&
		!d.Died.Before(f.Since) && (f.Before.IsZero() || d.Died.Before(f.Before)) &&
		(f.Reason == "" || strings.Contains(strings.ToLower(d.Reason), strings.ToLower(f.Reason)))
}

const (
	// MaxDeadStep is the highest limit of FindDead, RedriveStep and PurgeStep.
	MaxDeadStep = 1000
	// deadScan is how many dead letters of a priority or partition one call looks at, and deadKeys how many of their
	// messages it reads to find their keys.
	deadScan = 2000
	deadKeys = 200
)

// DeadPage is a result of FindDead.
type DeadPage struct {
	Letters []DeadLetter
	// Next is the position after which to continue, or 0 if there are no more dead letters.
	Next int64
}

// FindDead returns dead letters that the filter selects, after position after, in order: at most limit, which is 1
// to MaxDeadStep, and no more once their payloads, keys and headers have that many bytes. A call looks at a bounded
// number of dead letters: it may return none, with a Next from which to continue. Letters that die or are redriven
// meanwhile may be missing.
func (q *Queue) FindDead(ctx context.Context, f DeadFilter, after int64, limit, bytes int) (DeadPage, error) {
	found, next, err := q.findDead(ctx, f, after, limit)
	if err != nil {
		return DeadPage{}, err
	}
	for i, held := 0, 0; i < len(found); i++ {
		if held >= bytes && i > 0 {
			return DeadPage{found[:i], found[i-1].Position}, nil
		}
		d := &found[i]
		index, inner := q.inward(d.Position)
		d.Position = inner
		if err := q.members[index].readLetter(ctx, d); err != nil {
			return DeadPage{}, err
		}
		d.Position = q.outward(index, inner)
		held += contentSize(&d.Message)
	}
	return DeadPage{found, next}, nil
}

// DeadStep is a result of RedriveStep and PurgeStep.
type DeadStep struct {
	Changed int64 // how many dead letters were redriven or removed
	Next    int64 // the position after which to continue, or 0 if there are no more dead letters
}

// RedriveStep is Redrive of at most limit dead letters, 1 to MaxDeadStep, that the filter selects, after position
// after. A program calls it with the Next of the step before, until that is 0. A step is committed when it returns,
// and can be repeated. Each call looks at a bounded number of dead letters, so that it takes a bounded time; it may
// change none. Letters that a node buries meanwhile are passed over if their position is before Next. With an error,
// Changed is how many were changed nevertheless, in other priorities or partitions.
func (q *Queue) RedriveStep(ctx context.Context, f DeadFilter, after int64, limit int) (DeadStep, error) {
	return q.deadStep(ctx, "redrive", redriveFoundSQL, f, after, limit)
}

// PurgeStep removes dead letters, in steps as RedriveStep.
func (q *Queue) PurgeStep(ctx context.Context, f DeadFilter, after int64, limit int) (DeadStep, error) {
	return q.deadStep(ctx, "purge", purgeFoundSQL, f, after, limit)
}

// PurgeDead removes the dead letters at these positions, and returns how many there were.
func (q *Queue) PurgeDead(ctx context.Context, positions ...int64) (purged int64, err error) {
	for i, some := range q.byMember(positions) {
		if len(some) == 0 {
			continue
		}
		n, err := q.members[i].change(ctx, purgePositionsSQL, q.members[i].id, some)
		if purged += n; err != nil {
			return purged, q.members[i].explain("purge", err)
		}
	}
	return purged, nil
}

// deadStep changes the dead letters that it finds. The statement leaves out those that were redriven meanwhile,
// also if they have died again.
func (q *Queue) deadStep(ctx context.Context, what, sql string, f DeadFilter, after int64, limit int) (DeadStep, error) {
	found, next, err := q.findDead(ctx, f, after, limit)
	if err != nil {
		return DeadStep{}, err
	}
	positions, died := make([][]int64, len(q.members)), make([][]time.Time, len(q.members))
	for i := range found {
		index, inner := q.inward(found[i].Position)
		positions[index], died[index] = append(positions[index], inner), append(died[index], found[i].Died)
	}
	step := DeadStep{Next: next}
	for i, m := range q.members {
		if len(positions[i]) == 0 {
			continue
		}
		n, err := m.change(ctx, sql, m.id, positions[i], died[i])
		if step.Changed += n; err != nil {
			return DeadStep{Changed: step.Changed}, m.explain(what, err)
		}
	}
	return step, nil
}

// findDead returns dead letters, without their messages, in order, and where to continue.
func (q *Queue) findDead(ctx context.Context, f DeadFilter, after int64, limit int) (found []DeadLetter, next int64, err error) {
	if limit < 1 || limit > MaxDeadStep {
		return nil, 0, fmt.Errorf("%w limit: %d, want 1 to %d", ErrInvalid, limit, MaxDeadStep)
	}
	if after < 0 {
		return nil, 0, fmt.Errorf("%w position: %d, want at least 0", ErrInvalid, after)
	}
	upTo := int64(math.MaxInt64)
	for i, m := range q.members {
		letters, last, err := m.findDead(ctx, f, (after-int64(i))/int64(len(q.members)), limit)
		if err != nil {
			return nil, 0, err
		}
		if last > 0 {
			upTo = min(upTo, q.outward(i, last))
		}
		for _, d := range letters {
			d.Position = q.outward(i, d.Position)
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b DeadLetter) int { return cmp.Compare(a.Position, b.Position) })
	found = slices.DeleteFunc(found, func(d DeadLetter) bool { return d.Position > upTo })
	if len(found) > limit {
		found = found[:limit]
		upTo = found[limit-1].Position
	}
	if upTo == math.MaxInt64 {
		upTo = 0
	}
	return found, upTo, nil
}

// findDead returns dead letters of one member, and the position up to which it has looked, or 0 if it has seen all.
func (q *shard) findDead(ctx context.Context, f DeadFilter, after int64, limit int) (found []DeadLetter, last int64, err error) {
	scan := deadScan
	if f == (DeadFilter{}) {
		scan = limit + 1
	}
	letters, err := q.deadRows(ctx, after, scan)
	if err != nil {
		return nil, 0, err
	}
	read := 0
	for i := range letters {
		d := &letters[i]
		if !f.matches(d) {
			continue
		}
		if len(found) == limit || read == deadKeys {
			return found, letters[i-1].Position, nil
		}
		has := true
		if f.Key != "" {
			read++
			if has, err = q.hasKey(ctx, *d, f.Key); err != nil {
				return nil, 0, err
			}
		}
		if has {
			found = append(found, *d)
		}
	}
	if len(letters) == scan {
		last = letters[scan-1].Position
	}
	return found, last, nil
}

// hasKey reports whether the message of a dead letter has the key.
func (q *shard) hasKey(ctx context.Context, d DeadLetter, key string) (bool, error) {
	err := q.readLetter(ctx, &d)
	return d.Key == key, err
}
