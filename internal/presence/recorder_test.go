package presence

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/presence/presencetest"
	"github.com/tidewire/tidewire/stream"
)

// slowPublisher stores a batch when it is told to, or fails.
type slowPublisher struct {
	store   chan error
	picture *presencetest.Picture // used by the goroutine that writes, and after it has ended
}

func (p *slowPublisher) Publish(ctx context.Context, _ string, _ *engine.RequestID, messages []engine.Message, done func(engine.Place, error)) error {
	select {
	case err := <-p.store:
		for i := range messages {
			if err == nil {
				p.picture.Apply(messages[i].Key, messages[i].Payload)
			}
		}
		done(engine.Place{}, err)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// newRecorder returns a Recorder without a database, whose publisher stores nothing until its channel is read or closed.
func newRecorder(maxWaiting int) (*Recorder, *slowPublisher) {
	p := &slowPublisher{make(chan error), new(presencetest.Picture)}
	r := &Recorder{cfg: Config{Node: "n", MaxWaiting: maxWaiting, Publisher: p, Log: slog.New(slog.DiscardHandler)}, wake: make(chan struct{}, 1), target: new(stream.Stream)}
	r.record(event{kind: nodeStarted, at: now()})
	return r, p
}

// writeOut writes everything that waits, now and for as long as there is something.
func (r *Recorder) writeOut(t *testing.T) {
	t.Helper()
	for {
		w := r.take()
		if len(w.events) == 0 {
			return
		}
		if _, err := r.writeAll(t.Context(), w.events); err != nil {
			t.Fatal(err)
		}
		r.wrote(w)
	}
}

// check compares what a reader knows with what there is.
func check(t *testing.T, r *Recorder, p *presencetest.Picture, lost uint64) {
	t.Helper()
	for _, fault := range p.Faults {
		t.Error(fault)
	}
	want := 0
	for _, c := range r.connections {
		want += 1 + len(c.rooms)
	}
	if len(p.Entries) != want {
		t.Errorf("a reader knows %v, want %d entries", p.Names(), want)
	}
	if p.Lost != lost || r.missed.Load() != lost {
		t.Errorf("%d events are told to be lost, and the metric says %v; want %d", p.Lost, r.missed.Load(), lost)
	}
}

// TestRecorder_FullBuffer: while the buffer is full, events are lost and counted; then the count and the whole picture are written.
func TestRecorder_FullBuffer(t *testing.T) {
	t.Parallel()
	r, p := newRecorder(5)
	close(p.store)
	a := r.Connected("ann") // with node_started, the second of five
	a.Joined("lobby", "ann")
	b := r.Connected("")
	b.Joined("lobby", "bob")
	a.Left("lobby", "ann") // lost
	b.Joined("attic", "")  // lost
	c := r.Connected("cid")
	c.Disconnected() // both lost, so nobody hears of it
	if n := len(r.events); n != 5 {
		t.Errorf("%d events wait, want 5", n)
	}
	r.writeOut(t)
	check(t, r, p.picture, 4)
	b.Disconnected()
	a.Joined("lobby", "ann")
	r.writeOut(t)
	check(t, r, p.picture, 4)
	if got := p.picture.Types; got[eventsLost] != 1 || got[left] != 2 || got[disconnected] != 1 {
		t.Errorf("%v, want one events_lost, and what b has left", got)
	}
}

// TestRecorder_LossesWhileWriting: events count as waiting until they are written, and what happens while the picture is written comes after it.
func TestRecorder_LossesWhileWriting(t *testing.T) {
	t.Parallel()
	r, p := newRecorder(3)
	close(p.store)
	a := r.Connected("ann")
	a.Joined("one", "ann")
	first := r.take()
	a.Left("one", "ann") // there is no room before first is written
	if _, err := r.writeAll(t.Context(), first.events); err != nil {
		t.Fatal(err)
	}
	r.wrote(first)
	a.Joined("one", "ann") // there is room, but a reader does not know that it has left
	second := r.take()     // events_lost and the picture
	a.Joined("two", "ann")
	a.Left("two", "ann")
	a.Joined("three", "ann")
	a.Joined("four", "ann") // lost
	if _, err := r.writeAll(t.Context(), second.events); err != nil {
		t.Fatal(err)
	}
	r.wrote(second)
	r.writeOut(t)
	check(t, r, p.picture, 3)
}

// TestRecorder_FailedWrite: after a write that has failed, the picture is told anew.
func TestRecorder_FailedWrite(t *testing.T) {
	t.Parallel()
	r, p := newRecorder(100)
	a := r.Connected("ann")
	a.Joined("lobby", "ann")
	w := r.take()
	go func() { p.store <- errors.New("test"); close(p.store) }()
	written, err := r.writeAll(t.Context(), w.events)
	if err == nil || written != 0 {
		t.Fatal(written, err)
	}
	r.failed(w, written)
	a.Left("lobby", "ann")
	r.writeOut(t)
	check(t, r, p.picture, 4) // node_started too
}

// TestRecorder_NothingAfterTheEnd: a connection that has ended is in no room, whatever is told of it later.
func TestRecorder_NothingAfterTheEnd(t *testing.T) {
	t.Parallel()
	r, p := newRecorder(100)
	close(p.store)
	a := r.Connected("")
	a.Joined("lobby", "")
	a.Named("ann")
	a.Disconnected()
	a.Left("lobby", "")
	a.Joined("lobby", "")
	a.Named("bob")
	a.Disconnected()
	r.writeOut(t)
	check(t, r, p.picture, 0)
	if got := p.picture.Types; got[connected] != 2 || got[disconnected] != 2 || got[joined] != 1 || got[left] != 1 {
		t.Errorf("%v, want a connection that is named, in one room", got)
	}
}

// TestRecorder_Names: a name that PostgreSQL could not read is changed, and a key is never too long.
func TestRecorder_Names(t *testing.T) {
	t.Parallel()
	long := make([]byte, 2000)
	for i := range long {
		long[i] = 'x'
	}
	for name, want := range map[string]string{"a\x00b": "a\uFFFDb", "a\xffb": "a\uFFFDb", "ä<&>": "ä<&>", string(long): string(long)} {
		e := event{kind: joined, at: now(), connection: 1, user: name, room: name}
		got := e.encode("n")
		p := new(presencetest.Picture)
		key := want
		if len(want) > stream.MaxKey {
			key = want[:0] + got.key
		}
		p.Apply(key, got.payload)
		if len(got.key) > stream.MaxKey || len(p.Entries) != 1 {
			t.Errorf("%q: %q %s", name, got.key, got.payload)
		}
		for entry := range p.Entries {
			if entry.User != want || entry.Room != want {
				t.Errorf("%q becomes %+v", name, entry)
			}
		}
	}
}

// TestRecorder_NeverWaits: nothing that is recorded waits for the publisher.
func TestRecorder_NeverWaits(t *testing.T) {
	t.Parallel()
	r, p := newRecorder(10)
	ctx, giveUp := context.WithCancel(t.Context())
	r.giveUp = giveUp
	r.running.Go(func() { r.write(ctx) })
	a := r.Connected("ann")
	for range 1000 {
		a.Joined("lobby", "ann")
		a.Left("lobby", "ann")
	}
	stopped, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	r.stop = func() {}
	if err := r.Stop(stopped); err == nil {
		t.Error("nothing was written, and Stop does not say so")
	}
	if len(p.picture.Types) != 0 {
		t.Errorf("%v", p.picture.Types)
	}
}
