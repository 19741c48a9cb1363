package stream_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// TestFollower: the process's own messages are in memory, in order and once, and the stream
// need not be read; for other messages the Follower says that it has to be read.
func TestFollower(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never, NoListen: true})
	told := make(chan int64, 100)
	a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h, OnCommit: func(last int64) { told <- last }})
	store := func(msgs ...stream.Message) {
		t.Helper()
		first := mustAppend(t, a, msgs...)
		for last := int64(0); last < first; { // the Hub knows by then
			last = <-told
		}
	}
	f := h.Follow(s)
	defer f.Close()
	recent := func(after int64, limit int, want ...string) (ask bool) {
		t.Helper()
		page, ask := f.Recent(after, limit)
		var got []string
		for i, m := range page {
			if m.Position != after+int64(i)+1 {
				t.Errorf("after %d: message %d has position %d", after, i, m.Position)
			}
			got = append(got, string(m.Payload))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after %d: %q, want %q", after, got, want)
		}
		return ask
	}
	if !recent(0, 10) {
		t.Error("a new Follower need not read")
	}
	if recent(0, 10) || f.Hinted() {
		t.Error("told to read twice")
	}
	for n := range 3 {
		store(messages(fmt.Sprint(n))...)
	}
	<-f.Changed()
	if recent(0, 2, "0", "1") || recent(1, 1, "1") || recent(1, 10, "1", "2") || recent(3, 10) || f.Hinted() {
		t.Error("told to read what is at hand, or there is none")
	}
	if !recent(1, 10) {
		t.Error("what was forgotten need not be read")
	}
	store(stream.Message{Headers: []byte(`{"a":1}`), Payload: []byte("3")}) // PostgreSQL normalises headers
	if !recent(3, 10) {
		t.Error("a message with headers need not be read")
	}
	store(messages("4")...)
	if recent(4, 10, "4"); !recent(3, 10) {
		t.Error("a message before what is at hand need not be read")
	}
	f.Hinted()
	h.Notify(s)
	if !f.Hinted() || f.Hinted() {
		t.Error("a notification is not told of once")
	}
	for range 3 {
		store(stream.Message{Payload: make([]byte, 400<<10)})
	}
	if !recent(5, 10) {
		t.Error("more than is kept need not be read")
	}
}

// TestFollower_BesideSubscription: a Follower reads when it is told to, and finds the rest in
// memory, while subscriptions come and go and other processes append.
func TestFollower_BesideSubscription(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	h, _ := runHub(t, db.Pool, stream.HubConfig{})
	const messages = 600
	var writing sync.WaitGroup
	for n := range 2 {
		a := run(t, db.Pool, s, stream.AppenderConfig{Hub: h})
		writing.Go(func() {
			for i := range messages / 2 {
				m := stream.Message{Payload: fmt.Append(nil, n, " ", i)}
				if i%50 == 0 {
					m.Headers = []byte(`{}`)
				}
				mustAppend(t, a, m)
			}
		})
	}
	writing.Go(func() {
		for range 20 {
			sub, err := h.Subscribe(t.Context(), s, stream.Start{})
			if err != nil {
				t.Error(err)
				return
			}
			next(t, sub)
			sub.Close()
		}
	})
	f := h.Follow(s)
	defer f.Close()
	seen := make(map[string]bool)
	for after := int64(0); len(seen) < messages; {
		page, ask := f.Recent(after, 10)
		if ask {
			var err error
			if page, err = s.Read(t.Context(), after, 100); err != nil {
				t.Fatal(err)
			}
		}
		if len(page) == 0 && !ask {
			select {
			case <-f.Changed():
			case <-t.Context().Done():
				t.Fatal("not told of all messages")
			}
		}
		for _, m := range page {
			if m.Position <= after || seen[string(m.Payload)] {
				t.Fatalf("position %d, %q again", m.Position, m.Payload)
			}
			after = m.Position
			seen[string(m.Payload)] = true
		}
	}
	writing.Wait()
}

// TestFollower_SubscriptionReadsFirst: a Follower learns of another process's messages, also
// if a subscription has read them.
func TestFollower_SubscriptionReadsFirst(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	elsewhere := run(t, pools(t, db.URL, 1)[0], s, stream.AppenderConfig{})
	for n := range int64(3) {
		h, _ := runHub(t, db.Pool, stream.HubConfig{Poll: never, NoListen: true}) // a new one, which has not seen the end
		f := h.Follow(s)
		defer f.Close()
		f.Hinted()
		mustAppend(t, elsewhere, messages("x")...)
		sub := subscribe(t, h, s, stream.After(n))
		next(t, sub)
		sub.Close()
		select {
		case <-f.Changed():
		case <-time.After(20 * time.Second):
			t.Fatalf("not told of message %d", n+1)
		}
		if page, _ := f.Recent(n, 1); len(page) != 1 || page[0].Position != n+1 {
			t.Fatalf("message %d is not at hand: %+v", n+1, page)
		}
	}
}
