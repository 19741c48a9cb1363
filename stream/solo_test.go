package stream

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestAppender_IdleHasNoGoroutine: an Appender that has nothing to write alone has neither a
// goroutine nor batches. It gets them again when it writes alone, also while it stops.
func TestAppender_IdleHasNoGoroutine(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := NewAppender(db.Pool, s, AppenderConfig{})
	a.Start()
	for i := range int64(2) {
		if first, err := a.Append(t.Context(), Message{}); err != nil || first.First != i+1 {
			t.Fatalf("%+v, %v", first, err)
		}
		for deadline := time.Now().Add(time.Minute); a.solo.Load() != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the goroutine has not ended")
			}
		}
		if a.alone.Load() {
			t.Fatal("the Appender writes alone without a goroutine")
		}
	}
	var done sync.WaitGroup
	for range 3 { // without waiting for the answers before the end
		done.Add(1)
		if err := a.Submit(t.Context(), []Message{{}}, func(_ Appended, err error) {
			defer done.Done()
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	a.Stop()
	done.Wait()
	if head, err := s.Head(t.Context()); err != nil || head != 5 {
		t.Errorf("head %d, %v", head, err)
	}
	if _, err := a.Append(t.Context(), Message{}); err == nil {
		t.Error("it accepts messages after its end")
	}
}

// TestAppender_StopsAnyTime: Start and Stop may be called in any order and number. Messages that were
// accepted before are stored.
func TestAppender_StopsAnyTime(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s, err := Ensure(t.Context(), db.Pool, "s", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for round, steps := range [][]func(*Appender){
		{(*Appender).Stop},
		{(*Appender).Stop, (*Appender).Start, (*Appender).Stop},
		{(*Appender).Start, (*Appender).Start, (*Appender).Stop, (*Appender).Stop},
	} {
		a := NewAppender(db.Pool, s, AppenderConfig{})
		stored := make(chan error, 1)
		if err := a.Submit(t.Context(), []Message{{}}, func(_ Appended, err error) { stored <- err }); err != nil {
			t.Fatal(err)
		}
		var calling sync.WaitGroup
		for _, step := range steps {
			step(a)
			calling.Go(a.Stop)
		}
		calling.Wait()
		if err := <-stored; err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
	if head, err := s.Head(t.Context()); err != nil || head != 3 {
		t.Errorf("head %d, %v", head, err)
	}
}

// TestAppender_ComesAndGoes: calls come with pauses, so that goroutines end while messages
// are added. Each message is stored once.
func TestAppender_ComesAndGoes(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	const streams, calls = 4, 60
	var calling sync.WaitGroup
	for i := range streams {
		s, err := Ensure(t.Context(), db.Pool, fmt.Sprint("s", i), Options{OwnTables: i%2 == 0})
		if err != nil {
			t.Fatal(err)
		}
		a := NewAppender(db.Pool, s, AppenderConfig{})
		a.solo.Load().group.ReturnIdle(time.Millisecond)
		a.Start()
		defer a.Stop()
		for range 2 {
			calling.Go(func() {
				for n := range calls {
					if _, err := a.Append(context.Background(), Message{}); err != nil {
						t.Error(err)
						return
					}
					if solo := a.solo.Load(); solo != nil && n%2 == 0 {
						solo.group.Wake() // a turn without anything to commit, as after soloIdle
					}
				}
			})
		}
		defer func() {
			if head, err := s.Head(context.Background()); err != nil || head != 2*calls {
				t.Errorf("%s: head %d, %v, want %d", s.Name(), head, err, 2*calls)
			}
		}()
	}
	calling.Wait()
}

// TestCommitter_FewAreSlow: when many streams seem slow, PostgreSQL itself is slow, and
// they continue to share transactions.
func TestCommitter_FewAreSlow(t *testing.T) {
	t.Parallel()
	c := &committer{}
	slow := 0
	for range 3 * maxSlow {
		a := &Appender{}
		c.noteSlow(a)
		c.noteSlow(a) // which does not count twice
		if a.isSlow() {
			slow++
		}
	}
	if slow != maxSlow {
		t.Errorf("%d streams are slow, want %d", slow, maxSlow)
	}
}
