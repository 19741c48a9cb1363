package eventstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ErrSnapshot: a snapshot differs from the state that its projection computes, or
// cannot be used. Errors that wrap it are SnapshotErrors.
var ErrSnapshot = errors.New("eventstore: wrong snapshot")

// SnapshotError says what is wrong with a snapshot.
type SnapshotError struct {
	// Name of the snapshot, and the Position up to which it includes the events.
	Name     string
	Position int64
	Problem  string
}

func (e *SnapshotError) Error() string {
	return fmt.Sprintf("%v %q at position %d: %s", ErrSnapshot, e.Name, e.Position, e.Problem)
}

func (e *SnapshotError) Unwrap() error { return ErrSnapshot }

// Snapshot makes Project and Decide save the state of a projection in the
// database, and begin with it the next time. A store has one snapshot per name. A
// usable snapshot is never replaced by one at a lower position.
//
// A snapshot is used only if its checksum is right, if it has the same query and
// Version, and if its position is not past the end of the store. Otherwise Project
// begins with the first event, and replaces the snapshot.
type Snapshot[S any] struct {
	// Name of the snapshot, 1 to MaxName bytes, valid UTF-8 without NUL.
	Name string
	// Version has to change whenever Init, Apply or the encoding of the state
	// changes: otherwise snapshots of the older code are used.
	Version int
	// Every is the number of events that the projection applies since the last
	// snapshot before it saves a new one. Defaults to 1,000.
	Every int
	// Encode encodes the state, to at most MaxData bytes. For VerifySnapshots it
	// must be deterministic. Defaults to JSON.
	Encode func(S) ([]byte, error)
	// Decode decodes the bytes that Encode has returned. If it fails, the snapshot
	// is not used. Defaults to JSON.
	Decode func([]byte) (S, error)
}

// stored is a row of a snapshot.
type stored struct {
	name                         string
	position                     int64
	fingerprint, checksum, state []byte
}

func (r *stored) sum() []byte {
	sum := sha256.New()
	sum.Write(binary.BigEndian.AppendUint64(nil, uint64(r.position)))
	sum.Write(r.fingerprint)
	sum.Write(r.state)
	return sum.Sum(nil)
}

func (p *Projection[S]) snapshotName() string {
	if p.Snapshot == nil {
		return ""
	}
	return p.Snapshot.Name
}

func (p *Projection[S]) validate(field string) error {
	switch {
	case p.Snapshot == nil:
		return nil
	case p.Snapshot.Name == "" || len(p.Snapshot.Name) > MaxName:
		return invalid(field+".snapshot.name", "%d bytes, want 1 to %d", len(p.Snapshot.Name), MaxName)
	case !isText(p.Snapshot.Name):
		return invalid(field+".snapshot.name", notText)
	}
	return nil
}

func (p *Projection[S]) fingerprint() []byte {
	// JSON is unambiguous: it distinguishes the tags "a", "b" from the tag "a,b".
	text, _ := json.Marshal(struct { // of numbers and strings: it cannot fail
		Version int
		Query   Query
	}{p.Snapshot.Version, p.Query})
	sum := sha256.Sum256(text)
	return sum[:]
}

// snapshot returns the row for the current state, which includes all events up to position.
func (p *Projection[S]) snapshot(position int64) (stored, error) {
	encode := p.Snapshot.Encode
	if encode == nil {
		encode = func(state S) ([]byte, error) { return json.Marshal(state) }
	}
	state, err := encode(p.State)
	if err == nil && len(state) > MaxData {
		err = fmt.Errorf("state has %d bytes, want at most %d", len(state), MaxData)
	}
	if state == nil {
		state = []byte{} // nil would be NULL
	}
	row := stored{name: p.Snapshot.Name, position: position, fingerprint: p.fingerprint(), state: state}
	row.checksum = row.sum()
	return row, err
}

// problem says why the projection cannot begin with a snapshot, or returns "".
func (p *Projection[S]) problem(row *stored) string {
	switch {
	case !bytes.Equal(row.sum(), row.checksum):
		return "its checksum is wrong: the row was damaged or changed by hand"
	case !bytes.Equal(row.fingerprint, p.fingerprint()):
		return "it is of another query or version"
	}
	return ""
}

// resume sets the projection to the state of a snapshot.
func (p *Projection[S]) resume(row *stored) error {
	decode := p.Snapshot.Decode
	if decode == nil {
		decode = func(text []byte) (state S, err error) { return state, json.Unmarshal(text, &state) }
	}
	state, err := decode(row.state)
	if err == nil {
		p.State, p.taken = state, row.position
	}
	return err
}

// due reports whether it is time for another snapshot.
func (p *Projection[S]) due() bool {
	every := 1000
	if p.Snapshot != nil && p.Snapshot.Every > 0 {
		every = p.Snapshot.Every
	}
	return p.Snapshot != nil && p.applied >= every
}

// snapshots reads the stored snapshots of the projections, by name.
func (s *Store) snapshots(ctx context.Context, projections []Projected) (map[string]*stored, error) {
	var names []string
	for _, p := range projections {
		if name := p.snapshotName(); name != "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	found, err := s.pool.Query(ctx, snapshotsSQL, s.id, names)
	if err != nil {
		return nil, err
	}
	rows, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (*stored, error) {
		r := &stored{}
		return r, row.Scan(&r.name, &r.position, &r.fingerprint, &r.checksum, &r.state)
	})
	all := make(map[string]*stored, len(rows))
	for _, r := range rows {
		all[r.name] = r
	}
	return all, err
}

// resume sets the projections to their snapshots. It returns the lowest position
// after which one of them needs events.
func (s *Store) resume(projections []Projected, rows map[string]*stored) (after int64) {
	for i, p := range projections {
		if row := rows[p.snapshotName()]; row != nil {
			problem := p.problem(row)
			if problem == "" {
				if err := p.resume(row); err != nil {
					p.begin()
					problem = err.Error()
				}
			}
			if problem != "" {
				s.cfg.Log.Warn("snapshot not used", "store", s.name, "snapshot", row.name, "position", row.position, "problem", problem)
			}
		}
		if i == 0 || p.from() < after {
			after = p.from()
		}
	}
	return after
}

// save stores the snapshots that are due, of the states at head. A stored snapshot
// that could not be used is replaced, whatever its position. An error is only logged,
// because the states are correct without snapshots.
func (s *Store) save(ctx context.Context, projections []Projected, rows map[string]*stored, head int64) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	for _, p := range projections {
		if !p.due() {
			continue
		}
		row, err := p.snapshot(head)
		if err == nil {
			var unusable []byte
			if old := rows[row.name]; old != nil && p.from() != old.position {
				unusable = old.checksum
			}
			_, err = s.pool.Exec(ctx, saveSnapshotSQL, s.id, row.name, row.position, row.fingerprint, row.checksum, row.state, unusable)
		}
		if err != nil {
			s.cfg.Log.Warn("snapshot not saved", "store", s.name, "snapshot", p.snapshotName(), "error", err)
		}
	}
}

// VerifySnapshots verifies the stored snapshots of the projections. For each it computes
// the state from the first event up to the snapshot's position, encodes it, and
// compares the bytes. It returns joined SnapshotErrors for all snapshots that differ, or
// that Project would not use. Afterwards the projections hold the computed states.
func (s *Store) VerifySnapshots(ctx context.Context, projections ...Projected) error {
	if err := validateProjections(projections); err != nil {
		return err
	}
	rows, err := s.snapshots(ctx, projections)
	if err != nil {
		return s.explain("read snapshots of", err)
	}
	var wrong []error
	for _, p := range projections {
		row := rows[p.snapshotName()]
		if row == nil {
			continue
		}
		problem, err := s.verify(ctx, p, row)
		if err != nil {
			return s.explain("verify snapshots of", err)
		}
		if problem != "" {
			wrong = append(wrong, &SnapshotError{Name: row.name, Position: row.position, Problem: problem})
		}
	}
	return errors.Join(wrong...)
}

func (s *Store) verify(ctx context.Context, p Projected, row *stored) (problem string, err error) {
	p.begin()
	if problem := p.problem(row); problem != "" {
		return problem, nil
	}
	c := projectionCursor(s.readPage, *p.query(), 0)
	for !c.done {
		page, err := c.next(ctx, streamRows, streamBytes)
		if err != nil {
			return "", err
		}
		if c.head < row.position {
			return fmt.Sprintf("the store ends at %d", c.head), nil
		}
		for _, e := range page {
			if e.Position > row.position {
				c.done = true
				break
			}
			p.apply(e)
		}
	}
	computed, err := p.snapshot(row.position)
	if err != nil {
		return "", err
	}
	return difference(row.state, computed.state), nil
}

// difference says where the states differ, or returns "".
func difference(stored, computed []byte) string {
	if bytes.Equal(stored, computed) {
		return ""
	}
	at := 0
	for at < min(len(stored), len(computed)) && stored[at] == computed[at] {
		at++
	}
	part := func(state []byte) []byte { return state[min(max(0, at-20), len(state)):min(at+20, len(state))] }
	return fmt.Sprintf("from byte %d on %q is stored, and the events give %q", at, part(stored), part(computed))
}

func validateProjections(projections []Projected) error {
	if len(projections) == 0 {
		return invalid("projections", "none, want at least one")
	}
	var names []string
	for i, p := range projections {
		field := fmt.Sprintf("projections[%d]", i)
		if err := p.validate(field); err != nil {
			return err
		}
		if err := p.query().validate(field + ".query"); err != nil {
			return err
		}
		name := p.snapshotName()
		if name != "" && slices.Contains(names, name) {
			return invalid(field+".snapshot.name", "the same as that of an earlier projection")
		}
		names = append(names, name)
	}
	return nil
}
