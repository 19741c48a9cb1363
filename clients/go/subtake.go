package tidewire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// discard removes waiting items. The caller holds the lock.
func (s *subCore) discard(which func(*item) bool) {
	kept := s.items[:0]
	for i := s.head; i < len(s.items); i++ {
		if which(&s.items[i]) {
			s.used++
		} else {
			kept = append(kept, s.items[i])
		}
	}
	clear(s.items[len(kept):])
	s.items, s.head = kept, 0
}

func (s *subCore) revoke(partitions []int) {
	if f := s.options.Revoked; f != nil {
		s.push(item{call: func() { f(partitions) }})
	}
}

// most is how many items may wait. Besides messages these are calls of the program, and positions between two messages.
func (s *subCore) most() int { return 2*s.options.Credits + 10000 }

// take takes what the server has sent. After an error the server is not to be trusted.
func (s *subCore) take(m *incoming) error {
	var i item
	kind := string(m.kind)
	if kind != "position" && (kind == "event") != (s.convert != nil) {
		return fmt.Errorf("tidewire: the server has sent a message of the type %s for a subscription of another kind", kind)
	}
	if (kind == "message" || kind == "position") && positioned(m) != nil {
		return fmt.Errorf("tidewire: the server has sent a %s without a position", kind)
	}
	switch kind {
	case "message":
		i.message = Message[[]byte]{m.position, max(0, m.partition), string(m.key), m.headers, m.stored(), m.payload}
		i.part = m.partition >= 0
	case "position":
		i.message.Position, i.position = m.position, true
		i.message.Partition, i.part = max(0, m.partition), m.partition >= 0
	case "event":
		var ok bool
		if i, ok = s.convert(m); !ok {
			return errors.New("tidewire: the server has sent an event that cannot be read")
		}
	default:
		return s.moved(m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.link == nil {
		return nil
	}
	if i.position {
		s.skipped(i)
		return nil
	}
	if s.credit--; s.credit < 0 {
		return fmt.Errorf("tidewire: the server has sent more messages of a subscription than it was allowed: %d", s.options.Credits)
	}
	s.add(i)
	s.link.woken(s)
	return nil
}

// skipped takes a position up to which everything was left out. The caller holds the lock.
func (s *subCore) skipped(i item) {
	switch last := len(s.items) - 1; {
	case s.options.Share: // the server knows where the members go on
	case s.head == len(s.items):
		s.passed(&i)
	case s.items[last].position:
		s.items[last] = i
	default:
		s.push(i)
	}
}

// passed notes that the program has got everything up to i. The caller holds the lock.
func (s *subCore) passed(i *item) {
	if !s.options.Share {
		s.after, s.resumes = max(s.after, i.message.Position), true
	}
}

// moved takes a change of the partitions that the member owns.
func (s *subCore) moved(m *incoming) error {
	var change struct {
		parked
		Partitions []int `json:"partitions"`
	}
	text, err := m.json()
	if err == nil {
		err = json.Unmarshal(text, &change)
	}
	if err != nil {
		return fmt.Errorf("tidewire: the partitions of a subscription: %w", err)
	}
	defer s.grant() // for messages that are discarded, which the program does not take
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.link == nil {
		return nil
	}
	if len(s.items)-s.head >= s.most() {
		return errors.New("tidewire: the server has sent more changes of a subscription's partitions than the program takes")
	}
	switch string(m.kind) {
	case "assigned":
		for _, p := range change.Partitions {
			if !slices.Contains(s.owned, p) {
				s.owned = append(s.owned, p)
			}
		}
		if f := s.options.Assigned; f != nil {
			s.push(item{call: func() { f(change.Partitions) }})
		}
	case "revoked":
		gone := func(p int) bool { return slices.Contains(change.Partitions, p) }
		s.owned = slices.DeleteFunc(s.owned, gone)
		s.discard(func(i *item) bool { return i.part && gone(i.message.Partition) })
		s.revoke(change.Partitions)
	case "parked":
		s.push(change.item())
	}
	return nil
}
