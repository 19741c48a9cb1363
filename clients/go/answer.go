package tidewire

import (
	"errors"
	"fmt"
)

// answer is the answer ok.
type answer struct {
	position, count int64
	partition       int
	duplicate       bool
	has             bool // position was there
	value           any  // of requests that decode it
}

// accept returns the answer ok to r, if it has what it must have.
func (r *request) accept(in *incoming) (answer, error) {
	a := answer{position: in.position, count: in.count, partition: in.partition, duplicate: in.duplicate, has: in.has}
	err := r.complete(in)
	if err == nil && r.decode != nil {
		var text []byte
		if text, err = in.json(); err == nil {
			a.value, err = r.decode(text)
		}
	}
	if err != nil {
		return a, fmt.Errorf("tidewire: the server has answered a request of the type %s in another way than it must: %w", r.name(), err)
	}
	return a, nil
}

// complete reports what is missing in the answer ok to r.
func (r *request) complete(in *incoming) error {
	if r.check != nil {
		return r.check(in)
	}
	if r.send == nil {
		return nil
	}
	if n := int64(len(r.send.messages)); in.count != n && (in.count != 0 || r.members != nil) && !in.duplicate {
		return fmt.Errorf("count is %d, of %d messages", in.count, n)
	}
	return positioned(in)
}

// name returns the type of r on the wire.
func (r *request) name() string {
	if r.send != nil {
		return r.send.kind
	}
	return r.kind
}

// positioned wants a position.
func positioned(in *incoming) error {
	if !in.has || in.position < 0 || in.partition < -1 {
		return errors.New("there is no position")
	}
	return nil
}

// counted wants a count.
func counted(in *incoming) error {
	if in.count < 1 {
		return errors.New("there is no count")
	}
	return nil
}
