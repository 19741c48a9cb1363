package multinode

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// awaitAnswers waits until the last requests of publishers and enqueuers are answered.
func (r *run) awaitAnswers() {
	answered := make(chan struct{})
	go func() {
		r.talking.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(patience):
		r.ledger.Break(PromiseAnswered, "some are not answered after %v", patience)
	}
}

// settleDown waits until the readers have received everything, the consumers have settled everything, and the live room is quiet.
func (r *run) settleDown(ctx context.Context) error {
	r.cfg.Progress("reading the remaining messages")
	for end := time.Now().Add(patience); ; {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		left, err := r.left(ctx)
		if err != nil || left == "" {
			return err
		}
		if time.Now().After(end) {
			r.cfg.Progress("after %v, %s", patience, left) // the checks decide whether that breaks another promise
			if left := r.unanswered(); left != "" {
				r.ledger.Break(PromiseAnswered, "after %v, %s", patience, left)
			}
			return nil
		}
	}
}

// left returns what is not received or settled yet, or an empty string.
func (r *run) left(ctx context.Context) (string, error) {
	if left := r.unanswered(); left != "" {
		return left, nil
	}
	if n := r.room.open(r.room.snapshot()); n > 0 {
		return fmt.Sprintf("%d chats are neither received nor told as missing", n), nil
	}
	if left := r.jobs.unsettled(); len(left) > 0 {
		return fmt.Sprintf("%d messages are not settled, the first at position %d", len(left), left[0].position), nil
	}
	if left, err := r.unread(ctx); left != "" || err != nil {
		return left, err
	}
	depth, err := r.depth(ctx)
	return depth.left(), err
}

// unanswered returns which chats have no answer, or an empty string.
func (r *run) unanswered() string {
	switch {
	case !r.room.quiet():
		return "chats of the live room are not answered"
	case slices.ContainsFunc(r.keepers, func(k *keeper) bool { return k.pending.Load() > 0 }):
		return "chats of the stored room are not answered"
	}
	return ""
}

// unread returns what a subscriber, or a member of the stored room, lacks, or an empty string.
func (r *run) unread(ctx context.Context) (string, error) {
	heads := make(map[string]int64)
	for _, name := range []string{stream, storedRoom} {
		held, err := r.held(ctx, name)
		if err != nil {
			return "", err
		}
		if len(held) > 0 {
			heads[name] = held[len(held)-1].position
		}
	}
	lag := 0
	for _, k := range r.keepers {
		if k.at.last() < heads[storedRoom] {
			lag++
		}
	}
	if lag > 1 { // the member that has sent the last chat does not receive it
		return "members of the stored room lack chats", nil
	}
	if slices.ContainsFunc(r.subscribers, func(s *subscriber) bool { return s.at.last() < heads[stream] }) {
		return "subscribers lack messages", nil
	}
	return "", nil
}
