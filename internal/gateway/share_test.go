package gateway_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// fakeMember is a member of a group, to which the test assigns partitions.
type fakeMember struct {
	ready  chan struct{}
	mu     sync.Mutex
	shares []engine.Share
	err    error // after these
	owned  map[int]bool
	commit map[int]int64
	closed bool
}

func newFakeMember() *fakeMember {
	return &fakeMember{ready: make(chan struct{}, 1), owned: make(map[int]bool), commit: make(map[int]int64)}
}

func (m *fakeMember) nudge() {
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

// gets gives the member something.
func (m *fakeMember) gets(shares ...engine.Share) {
	m.mu.Lock()
	m.shares = append(m.shares, shares...)
	m.mu.Unlock()
	m.nudge()
}

func (m *fakeMember) look(what func() bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return what()
}

func (m *fakeMember) Ready() <-chan struct{} { return m.ready }

func (m *fakeMember) Poll(_ context.Context, most int) (share engine.Share, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.shares) == 0 {
		return share, m.err
	}
	share = m.shares[0]
	if n := len(share.Messages); n > most {
		if most == 0 {
			return engine.Share{}, nil
		}
		share.Messages, m.shares[0].Messages = share.Messages[:most], share.Messages[most:]
	} else {
		m.shares = m.shares[1:]
	}
	for _, p := range share.Assigned {
		m.owned[p.Partition] = true
	}
	for _, p := range share.Revoked {
		delete(m.owned, p)
	}
	return share, nil
}

func (m *fakeMember) Commit(_ context.Context, partition int, position int64) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.owned[partition] {
		return 0, engine.ErrFenced
	}
	m.commit[partition] = max(m.commit[partition], position)
	return m.commit[partition], nil
}

func (m *fakeMember) CommitLater(partition int, position int64) error {
	_, err := m.Commit(context.Background(), partition, position)
	return err
}

func (m *fakeMember) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}

// Join implements engine.Streams. The stream jobs is that of a queue.
func (f *fakeStreams) Join(_ context.Context, stream, _ string) (engine.Membership, error) {
	switch {
	case stream == "jobs":
		return nil, engine.ErrQueueStream
	case f.member == nil || stream != "orders":
		return nil, engine.ErrNotFound
	}
	return f.member, nil
}

// share are messages of a partition, with the keys k0, k1 and k2 in turn.
func share(partition int, positions ...int64) (s engine.Share) {
	s.Partition = partition
	for _, p := range positions {
		s.Messages = append(s.Messages, engine.Message{Position: p, Key: fmt.Sprint("k", p%3), Payload: []byte("x"), Time: time.Unix(1000, 0)})
	}
	return s
}

func assigned(partitions ...int) (s engine.Share) {
	for _, p := range partitions {
		s.Assigned = append(s.Assigned, engine.PartitionAt{Partition: p, Position: int64(p)})
	}
	return s
}

// shared is a message of share as the member gets it.
func shared(partition, position int) string {
	return fmt.Sprintf(`{"type":"message","stream":"orders","subscription":"orders","partition":%d,"position":%d,"key":"k%d","time":"1970-01-01T00:16:40Z","payload":"x"}`, partition, position, position%3)
}

const joinGroup = `{"type":"subscribe","id":1,"stream":"orders","group":"g","share":true%s}`

// serveShared serves a stream whose group has a member.
func serveShared(t *testing.T, account *budget.Budget) (*fakeMember, string) {
	streams := newFakeStreams(t, "orders")
	streams.member = newFakeMember()
	_, addr := serve(t, gateway.Config{Engine: engine.Engine{Streams: streams}, Budget: account})
	return streams.member, addr
}

// TestShare: a member learns of its partitions at once, and gets messages as it has credits. It commits what it owns.
func TestShare(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		account := budget.New(1 << 30)
		m, addr := serveShared(t, account)
		c := connect(t, addr)
		c.ask(fmt.Sprintf(joinGroup, `,"credits":0`), `{"type":"ok","id":1}`)
		followed := account.Held(budget.Follow)
		m.gets(assigned(0, 3), share(3, 4, 5, 6), share(0, 1))
		c.want(`{"type":"assigned","stream":"orders","subscription":"orders","partitions":[0,3],"positions":[0,3]}`)
		if held := account.Held(budget.Follow); held != 3*followed {
			t.Errorf("%d bytes are counted with two partitions, and %d without", held, followed)
		}
		c.silent(time.Second)
		send(t, c.socket, `{"type":"credit","subscription":"orders","n":2}`)
		c.want(shared(3, 4), shared(3, 5))
		c.silent(time.Second)
		send(t, c.socket, `{"type":"credit","subscription":"orders","n":9}`)
		c.want(shared(3, 6), shared(0, 1))

		c.ask(`{"type":"commit","id":2,"stream":"orders","group":"g","partition":3,"position":5}`, `{"type":"ok","id":2,"partition":3,"position":5}`)
		m.gets(engine.Share{Revoked: []int{3}})
		c.want(`{"type":"revoked","stream":"orders","subscription":"orders","partitions":[3]}`)
		if held := account.Held(budget.Follow); held != 2*followed {
			t.Errorf("%d bytes are counted with one partition, and %d without", held, followed)
		}
		for request, want := range map[string]string{
			`"group":"g","partition":3,"position":6`: "fenced", `"group":"other","partition":0,"position":6`: "fenced", `"group":"g","position":6`: "malformed",
		} {
			if got := c.code(`{"type":"commit","id":"x","stream":"orders",` + request + `}`); got != want {
				t.Errorf("a commit with %s: %s, want %s", request, got, want)
			}
		}
		send(t, c.socket, `{"type":"commit","stream":"orders","group":"g","partition":0,"position":1}`)
		c.pong()
		if !m.look(func() bool { return m.commit[0] == 1 && m.commit[3] == 5 }) {
			t.Errorf("committed %v", m.commit)
		}
		c.ask(`{"type":"unsubscribe","id":3,"subscription":"orders"}`, `{"type":"ok","id":3}`)
		if !m.look(func() bool { return m.closed }) || account.Held(budget.Follow) != 0 {
			t.Errorf("it is still a member, and %d bytes are counted", account.Held(budget.Follow))
		}
	})
}

// TestShare_Filter: the server reports to the member how far it has read. What is left of a revoked partition is not sent.
func TestShare_Filter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m, addr := serveShared(t, nil)
		c := connect(t, addr)
		c.ask(fmt.Sprintf(joinGroup, `,"keys":["k1","k2"],"credits":2`), `{"type":"ok","id":1}`)
		m.gets(assigned(0, 1), share(0, 3, 4, 5, 6, 7, 8, 9), assigned(2))
		c.want(`{"type":"assigned","stream":"orders","subscription":"orders","partitions":[0,1],"positions":[0,1]}`, shared(0, 4), shared(0, 5),
			`{"type":"assigned","stream":"orders","subscription":"orders","partitions":[2],"positions":[2]}`)
		send(t, c.socket, `{"type":"credit","subscription":"orders","n":1}`)
		c.want(shared(0, 7))
		m.gets(engine.Share{Revoked: []int{0}}, share(1, 2, 3, 6))
		c.want(`{"type":"revoked","stream":"orders","subscription":"orders","partitions":[0]}`)
		send(t, c.socket, `{"type":"credit","subscription":"orders","n":9}`)
		c.want(shared(1, 2), `{"type":"position","stream":"orders","subscription":"orders","partition":1,"position":6}`)
		m.gets(share(1, 9), engine.Share{Revoked: []int{1}}) // what would be told a second later
		c.want(`{"type":"revoked","stream":"orders","subscription":"orders","partitions":[1]}`)
		c.silent(5 * time.Second)
	})
}

// TestShare_Parked: the owner of a partition whose next messages cannot be read gets a report. A stream that is dropped ends the subscription.
func TestShare_Parked(t *testing.T) {
	t.Parallel()
	m, addr := serveShared(t, nil)
	c := connect(t, addr)
	c.ask(fmt.Sprintf(joinGroup, ""), `{"type":"ok","id":1}`)
	m.gets(assigned(0), engine.Share{Parked: &engine.Parked{Oldest: 7}}, engine.Share{Parked: &engine.Parked{Oldest: 9, TooLarge: &engine.TooLargeError{Position: 8, Size: 1 << 30}}})
	c.want(`{"type":"assigned","stream":"orders","subscription":"orders","partitions":[0],"positions":[0]}`)
	for _, want := range []string{`"code":"too_old"`, `"code":"message_too_large"`} {
		c.until(want)
	}
	m.mu.Lock()
	m.err = engine.ErrNotFound
	m.mu.Unlock()
	m.nudge()
	c.want(`{"type":"error","subscription":"orders","code":"stream_gone","message":"the stream was dropped","retryable":false}`)
	testkit.Eventually(t, "it is no member", func() bool { return m.look(func() bool { return m.closed }) })
}

// TestShare_RightsEnd: a member needs to read and to commit. Without the right it ends, and gives its partitions back.
func TestShare_RightsEnd(t *testing.T) {
	t.Parallel()
	m := newFakeMember()
	c := serveClosed(t, nil)
	c.streams.member = m
	if got := c.as("/ws", tokenOf(t, "bob", time.Hour, "read stream:orders")).code(`{"type":"subscribe","id":"x","stream":"orders","group":"g","share":true}`); got != "forbidden" {
		t.Error(got)
	}
	w := c.as("/ws", tokenOf(t, "ann", time.Hour, "read,commit stream:orders"))
	w.ask(fmt.Sprintf(joinGroup, ""), `{"type":"ok","id":1}`)
	send(t, w.socket, fmt.Sprintf(`{"type":"auth","id":2,"token":%q}`, tokenOf(t, "ann", time.Hour, "read stream:orders")))
	w.until(`"subscription":"orders","code":"forbidden"`)
	testkit.Eventually(t, "it is no member", func() bool { return m.look(func() bool { return m.closed }) })
}
