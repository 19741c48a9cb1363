package queue

import (
	"testing"
	"time"
)

// TestApplyStatus_KeepsWhatIsDue: the answer to a poll does not know of a message that was
// deferred after the poll began.
func TestApplyStatus_KeepsWhatIsDue(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	p := newShardNode(NewNode(q, NodeConfig{}), q.members[0])
	asked := p.times.noted
	due := time.Now().Add(time.Minute)
	p.times.dueBy(&sidePut{Due: &due}, time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applyStatus(queueStatus{now: time.Now()}, asked)
	if !p.times.due.Equal(due) {
		t.Errorf("due at %v, want %v", p.times.due, due)
	}
	p.applyStatus(queueStatus{now: time.Now()}, p.times.noted)
	if !p.times.due.IsZero() {
		t.Errorf("due at %v, and nothing is", p.times.due)
	}
}
