package tidewire

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// gapOf returns what err says of messages that are missing; nil if it says nothing of them.
func gapOf(err error) *Gap {
	var old *TooOldError
	var large *MessageTooLargeError
	switch {
	case errors.As(err, &old):
		return &Gap{Code: old.Err.Code, Oldest: old.Oldest, Partition: -1}
	case errors.As(err, &large):
		return &Gap{Code: large.Err.Code, Oldest: large.Position + 1, Partition: -1, Position: large.Position, Size: large.Size}
	}
	return nil
}

// parked is a partition that gives nothing until Oldest - 1 is committed.
type parked struct {
	Code      string `json:"code"`
	Partition int    `json:"partition"`
	Oldest    int64  `json:"oldest"`
	Position  int64  `json:"position"`
	Size      int64  `json:"size"`
}

func (p parked) item() item {
	w := wireError{Code: p.Code, Partition: &p.Partition, Oldest: p.Oldest, Position: p.Position, Size: p.Size}
	switch p.Code {
	case "too_old":
		w.Message = fmt.Sprintf("the messages of partition %d before position %d were dropped", p.Partition, p.Oldest)
	case "message_too_large":
		w.Message = fmt.Sprintf("the message of partition %d at position %d has %d bytes, and the server does not read it", p.Partition, p.Position, p.Size)
	default:
		w.Message = fmt.Sprintf("the server does not go on in partition %d", p.Partition)
	}
	w.Message += fmt.Sprintf(": commit position %d of this partition, and iterate again", p.Oldest-1)
	i := item{gap: &Gap{p.Code, p.Oldest, p.Partition, p.Position, p.Size}, err: w.typed(""), part: true}
	i.message.Partition = p.Partition
	return i
}

// missing takes an error that says where the subscription goes on. The program gets first what came before it.
func (s *subCore) missing(gap *Gap, err error) {
	select {
	case <-s.ready:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.push(item{gap: gap, err: err})
	default: // the program does not iterate yet
		s.mu.Lock()
		s.after, s.resumes = gap.Oldest-1, true
		s.push(item{call: func() { s.options.Gap(*gap) }})
		s.mu.Unlock()
		s.c.reattach(s, 0)
	}
}

// cross goes on after messages that are missing if the program wants that; else it returns the error that says so. l is the connection that
// the gap has come on.
func (s *subCore) cross(ctx context.Context, i item, l *link) error {
	if s.options.Gap == nil {
		return i.err
	}
	s.options.Gap(*i.gap)
	if !i.part {
		s.resume(i.gap.Oldest-1, l)
		return nil
	}
	_, err := s.c.commit(ctx, s.stream, s.options.Group, i.gap.Partition, i.gap.Oldest-1)
	if err == nil || errors.Is(err, ErrFenced) || errors.Is(err, ErrClosed) { // fenced: its owner does the same
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l && slices.Contains(s.owned, i.gap.Partition) {
		s.items = slices.Insert(s.items, s.head, i) // for the next iteration
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// resume subscribes after a position. If l has ended, the next connection comes to the gap again.
func (s *subCore) resume(after int64, l *link) {
	s.c.mu.Lock()
	defer s.c.unlock()
	if s.c.link != l || !slices.Contains(s.c.sources, source(s)) {
		return
	}
	s.mu.Lock()
	s.after, s.resumes = after, true
	s.mu.Unlock()
	s.attach(l)
}
