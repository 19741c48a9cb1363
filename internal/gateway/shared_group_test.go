package gateway_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestShare_TwoMembers: members at two servers share the partitions, and each message comes to one of them.
func TestShare_TwoMembers(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := serveDatabase(t, db, nil), serveDatabase(t, db, nil)
	one.make(t, "s", 4)
	publishKeys(t, one.addr, 0, 50)
	all := newCrew()
	a := all.joins(t, "a", connect(t, one.addr), `,"credits":1000`)
	a.owns(4)
	b := all.joins(t, "b", connect(t, two.addr), "")
	// Both read until they have two partitions each.
	var reading sync.WaitGroup
	reading.Go(func() { a.until(true, func() bool { return len(a.owned) == 2 }) })
	reading.Go(func() { b.until(true, func() bool { return len(b.owned) == 2 }) })
	reading.Wait()
	publishKeys(t, two.addr, 50, 100)
	heads := one.heads(t, 4)
	reading.Go(func() { a.until(true, func() bool { return a.reached(heads) }) })
	reading.Go(func() { b.until(true, func() bool { return b.reached(heads) }) })
	reading.Wait()
	for n := range 100 {
		if all.payloads[strconv.Itoa(n)] == 0 {
			t.Errorf("message %d is lost", n)
		}
	}
}

// TestShare_AMemberLeaves: what it has committed does not come again, and what it has not comes to the other.
func TestShare_AMemberLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*shares){
		"unsubscribe": func(m *shares) {
			send(m.t, m.Conn, `{"type":"unsubscribe","id":2,"subscription":"s"}`)
			m.await(func(p pushed) bool { return p.ID == 2 })
		},
		"closed": func(m *shares) { m.Close(1000, "") },
		"lost":   func(m *shares) { m.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := migrated.Open(t)
			one, two := serveDatabase(t, db, nil), serveDatabase(t, db, nil)
			one.make(t, "s", 3)
			publishKeys(t, one.addr, 0, 40)
			all := newCrew()
			a := all.joins(t, "a", connect(t, one.addr), "")
			a.until(false, func() bool { return len(a.got) == 40 })
			committed := make(map[int]int64)
			for _, m := range a.got[:25] {
				committed[m.partition] = max(committed[m.partition], m.position)
			}
			for partition, position := range committed {
				a.commit(partition, position)
			}
			for range committed {
				a.ok()
			}
			leave(a)
			b := all.joins(t, "b", connect(t, two.addr), "")
			b.owns(3)
			begun := maps.Clone(b.owned) // no message has come yet
			if len(b.got) == 0 {
				for partition, position := range begun {
					if position != committed[partition] {
						t.Errorf("partition %d begins after %d, want %d", partition, position, committed[partition])
					}
				}
			}
			b.until(false, func() bool {
				return b.owned[a.got[39].partition] >= a.got[39].position && len(b.got) >= 15-notAfter(a.got, committed)
			})
			for _, m := range b.got {
				if m.position <= committed[m.partition] {
					t.Errorf("%v was committed, and came again", m)
				}
			}
		})
	}
}

// notAfter counts those of the last 15 messages that are committed by a higher position of their partition.
func notAfter(got []at, committed map[int]int64) (n int) {
	for _, m := range got[25:] {
		if m.position <= committed[m.partition] {
			n++
		}
	}
	return n
}

// TestShare_AServerIsCutOff: when its lease is over, the other member gets the partitions, and it is fenced.
func TestShare_AServerIsCutOff(t *testing.T) {
	t.Parallel()
	db := migrated.Open(t)
	one, two := serveDatabase(t, db, nil), serveDatabase(t, db, nil)
	one.make(t, "s", 2)
	publishKeys(t, one.addr, 0, 20)
	all := newCrew()
	a := all.joins(t, "a", connect(t, one.addr), "")
	a.until(false, func() bool { return len(a.got) == 20 })
	b := all.joins(t, "b", connect(t, two.addr), "")
	one.cutting.cut()
	defer one.cutting.mend() // else its stop would wait
	a.owns(0)
	for _, partition := range []int{0, 1} {
		a.commit(partition, 1)
	}
	a.until(false, func() bool { return a.fenced == 2 })
	b.until(true, func() bool { return len(b.owned) == 2 && len(b.got) >= 20 })
	one.cutting.mend()
	a.owns(1) // it joins again
	b.owns(1)
	if got := b.code(`{"type":"commit","id":"x","stream":"s","group":"g","partition":7,"position":1}`); got != "errorfenced" {
		t.Error(got)
	}
}

// TestShare_ACommitAfterRevocation: the messages may still be handled, and their commit is fenced.
func TestShare_ACommitAfterRevocation(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 2)
	publishKeys(t, one.addr, 0, 20)
	all := newCrew()
	a := all.joins(t, "a", connect(t, one.addr), "")
	a.until(false, func() bool { return len(a.got) == 20 })
	b := all.joins(t, "b", connect(t, one.addr), "")
	a.owns(1)
	lost := 1
	if _, owned := a.owned[1]; owned {
		lost = 0
	}
	for _, m := range a.got {
		a.commit(m.partition, m.position)
	}
	want := len(slices.DeleteFunc(slices.Clone(a.got), func(m at) bool { return m.partition != lost }))
	a.until(false, func() bool { return a.fenced == want })
	b.until(true, func() bool { return len(b.got) == want })
	for i, m := range b.got {
		if m.partition != lost {
			t.Errorf("message %d is of partition %d, want %d", i, m.partition, lost)
		}
	}
	// Without an id nothing is answered, and nothing is committed.
	send(t, a.Conn, fmt.Sprintf(`{"type":"commit","stream":"s","group":"g","partition":%d,"position":1}`, lost))
	a.commit(lost, 1)
	a.until(false, func() bool { return a.fenced == want+1 })
}

// TestShare_OnePartition: a stream without partitions has one, and one member owns it.
func TestShare_OnePartition(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 0)
	publishKeys(t, one.addr, 0, 10)
	all := newCrew()
	a := all.joins(t, "a", connect(t, one.addr), "")
	a.until(false, func() bool { return len(a.got) == 10 })
	if a.got[0].partition != 0 {
		t.Errorf("partition %d, want 0", a.got[0].partition)
	}
	if got := a.code(`{"type":"commit","id":"x","stream":"s","group":"g","position":1}`); got != "errormalformed" {
		t.Errorf("without a partition: %s", got)
	}
	b := all.joins(t, "b", connect(t, one.addr), "")
	b.silent(50 * time.Millisecond)
	a.commit(0, a.got[4].position)
	a.ok()
	a.Abort()
	b.until(false, func() bool { return len(b.got) == 5 })
	if b.got[0].position != a.got[5].position {
		t.Errorf("b begins with %d, want %d", b.got[0].position, a.got[5].position)
	}
}

// TestShare_Credits: a member without credits learns of its partitions, and gets no message.
func TestShare_Credits(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 3)
	publishKeys(t, one.addr, 0, 30)
	a := newCrew().joins(t, "a", connect(t, one.addr), `,"credits":0`)
	a.owns(3)
	a.silent(50 * time.Millisecond)
	for granted := 0; granted < 30; granted += 10 {
		send(t, a.Conn, `{"type":"credit","subscription":"s","n":10}`)
		a.until(false, func() bool { return len(a.got) == granted+10 })
		a.silent(20 * time.Millisecond)
	}
}

// TestShare_Parked: when the next messages of a partition were dropped, its owner is told, and goes on where it commits.
func TestShare_Parked(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 0)
	publishKeys(t, one.addr, 0, 10)
	ctx := t.Context()
	if _, err := one.engine.Streams.Commit(ctx, "s", "g", 2); err != nil {
		t.Fatal(err)
	}
	if err := one.engine.Streams.SetRetention(ctx, "s", engine.Retention{MaxAge: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		page, err := one.engine.Streams.Read(ctx, "s", nil, 2, 1)
		return err != nil || len(page) == 0
	}, "retention drops nothing")
	if err := one.engine.Streams.SetRetention(ctx, "s", engine.Retention{}); err != nil {
		t.Fatal(err)
	}
	publishKeys(t, one.addr, 10, 11)
	a := newCrew().joins(t, "a", connect(t, one.addr), "")
	parked := a.await(func(p pushed) bool { return p.Type == "parked" })
	if parked.Code != "too_old" || parked.Oldest < 3 || parked.partition() != 0 {
		t.Fatalf("got %+v", parked)
	}
	a.commit(0, parked.Oldest-1)
	a.until(false, func() bool { return len(a.got) == 1 })
	if a.got[0].position != 11 {
		t.Errorf("goes on with %d, want 11", a.got[0].position)
	}
}

// TestShare_ParkedLarge: when the next message of a partition is too large, its owner gets its position, and goes on where it commits.
func TestShare_ParkedLarge(t *testing.T) {
	t.Parallel()
	one := serveDatabase(t, migrated.Open(t), nil)
	one.make(t, "s", 0)
	publishKeys(t, one.addr, 0, 1)
	c := client{t, one.addr}
	if status, text := c.do("POST", "/v1/streams/s/messages?raw", strings.Repeat("x", largestRead+1), "Content-Type", "application/octet-stream"); status != http.StatusOK {
		t.Fatal(text)
	}
	publishKeys(t, one.addr, 1, 2)
	a := newCrew().joins(t, "a", connect(t, one.addr), "")
	parked := a.await(func(p pushed) bool { return p.Type == "parked" })
	if parked.Code != "message_too_large" || parked.Position != 2 || parked.Oldest != 3 || parked.partition() != 0 {
		t.Fatalf("got %+v", parked)
	}
	a.commit(0, 1)
	a.await(func(p pushed) bool { return p.Type == "ok" })
	a.commit(0, parked.Oldest-1)
	a.until(false, func() bool { return len(a.got) == 2 })
	if a.got[1].position != 3 {
		t.Errorf("goes on with %d, want 3", a.got[1].position)
	}
}
