package queue

import (
	"testing"
	"time"
)

// TestSaw_KeepsWhatIsDue: the answer to a look knows nothing of a message that was deferred
// after it was asked for.
func TestSaw_KeepsWhatIsDue(t *testing.T) {
	t.Parallel()
	q := testQueue(t)
	p := newShardNode(NewNode(q, NodeConfig{}), q.members[0])
	asked := p.times.noted
	due := time.Now().Add(time.Minute)
	p.times.dueBy(&sidePut{Due: &due}, time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saw(sight{now: time.Now()}, asked)
	if !p.times.due.Equal(due) {
		t.Errorf("due at %v, want %v", p.times.due, due)
	}
	p.saw(sight{now: time.Now()}, p.times.noted)
	if !p.times.due.IsZero() {
		t.Errorf("due at %v, and nothing is", p.times.due)
	}
}
