package stream_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

// payloads returns the payloads of the messages.
func payloads(t *testing.T, msgs []stream.Message, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, m := range msgs {
		if i > 0 && m.Position <= msgs[i-1].Position {
			t.Errorf("position %d after %d", m.Position, msgs[i-1].Position)
		}
		all = append(all, string(m.Payload))
	}
	return all
}

func wantPayloads(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestRead_PagesThroughTheStream(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	if head, err := s.Head(t.Context()); head != 0 || err != nil {
		t.Errorf("head of an empty stream: %d, %v", head, err)
	}
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for n := range 10 {
		mustAppend(t, a, stream.Message{Payload: fmt.Append(nil, n)})
	}
	if head, err := s.Head(t.Context()); head != 10 || err != nil {
		t.Errorf("head: %d, %v, want 10", head, err)
	}
	var all []string
	after, reads := int64(0), 0
	for ; ; reads++ {
		page, err := s.Read(t.Context(), after, 4)
		if all = append(all, payloads(t, page, err)...); len(page) == 0 {
			break
		}
		after = page[len(page)-1].Position
	}
	wantPayloads(t, "all pages", all, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	if reads != 3 {
		t.Errorf("%d pages, want 3", reads)
	}
	if _, err := s.Read(t.Context(), 0, 0); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("limit 0: %v, want ErrInvalid", err)
	}
}

func TestReadKey_BoundsAndOrder(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for n := range 12 { // position n+1
		mustAppend(t, a, stream.Message{Key: []string{"a", "b", ""}[n%3], Payload: fmt.Append(nil, n)})
	}
	key := func(key string, after, upTo int64, limit int) []string {
		t.Helper()
		msgs, err := s.ReadKey(t.Context(), key, after, upTo, limit)
		return payloads(t, msgs, err)
	}
	wantPayloads(t, "all of a", key("a", 0, math.MaxInt64, 100), "0", "3", "6", "9")
	wantPayloads(t, "first two of b", key("b", 0, math.MaxInt64, 2), "1", "4")
	wantPayloads(t, "a after 4 up to 7", key("a", 4, 7, 100), "6")
	wantPayloads(t, "a up to 6", key("a", 0, 6, 100), "0", "3")
	wantPayloads(t, "a key nobody used", key("ab", 0, math.MaxInt64, 100))
	last := func(key string, upTo int64, n int) []string {
		t.Helper()
		msgs, err := s.LastKey(t.Context(), key, upTo, n)
		return payloads(t, msgs, err)
	}
	wantPayloads(t, "last two of a", last("a", math.MaxInt64, 2), "6", "9")
	wantPayloads(t, "last two of a up to 7", last("a", 7, 2), "3", "6")
	wantPayloads(t, "more of b than there are", last("b", math.MaxInt64, 100), "1", "4", "7", "10")
	wantPayloads(t, "b before its first", last("b", 1, 5))
	for _, bad := range []string{"", "\xff", "a\x00"} {
		if _, err := s.ReadKey(t.Context(), bad, 0, 10, 10); !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("ReadKey(%q): %v, want ErrInvalid", bad, err)
		}
	}
}

func TestReadKey_WantsKeyedStream(t *testing.T) {
	t.Parallel()
	db := setup(t)
	s := ensureWith(t, db.Pool, "plain", stream.Options{})
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), stream.Message{Key: "k"})
	if msgs, err := s.Read(t.Context(), 0, 1); err != nil || len(msgs) != 1 || msgs[0].Key != "k" {
		t.Errorf("Read: %v, %v, want the key all the same", msgs, err)
	}
	if _, err := s.ReadKey(t.Context(), "k", 0, 10, 10); !errors.Is(err, stream.ErrNotKeyed) {
		t.Errorf("ReadKey: %v, want ErrNotKeyed", err)
	}
	if _, err := s.LastKey(t.Context(), "k", 10, 10); !errors.Is(err, stream.ErrNotKeyed) {
		t.Errorf("LastKey: %v, want ErrNotKeyed", err)
	}
}

// TestRead_KeepsNoPlan: a cached plan would open every segment.
func TestRead_KeepsNoPlan(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	for range 3 {
		if _, err := s.Read(t.Context(), 0, 10); err != nil {
			t.Fatal(err)
		}
		if _, err := s.LastKey(t.Context(), "k", 10, 10); err != nil {
			t.Fatal(err)
		}
	}
	// One caller after the other, so the pool uses one connection.
	if kept := value[int](t, db.Pool, `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE $1`, "%FROM tidewire.stream_1%"); kept != 0 {
		t.Errorf("%d prepared reads", kept)
	}
}
