package stream_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

// TestRead_PagesAreBoundedByBytes, with a key and without.
func TestRead_PagesAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	const size, total = 10_000, 30
	for n := range total { // position n+1
		mustAppend(t, a, stream.Message{Key: []string{"a", "b", ""}[n%3], Payload: bytes.Repeat([]byte{byte(n)}, size)})
	}
	if start, err := s.KeyStart(t.Context(), "a", math.MaxInt64, 3); start != 21 || err != nil {
		t.Errorf("the last 3 of a begin after %d, %v, want 21", start, err)
	}
	if start, err := s.KeyStart(t.Context(), "a", 9, 2); start != 3 || err != nil {
		t.Errorf("the last 2 of a up to 9 begin after %d, %v, want 3", start, err)
	}
	if start, err := s.KeyStart(t.Context(), "none", 17, 2); start != 17 || err != nil {
		t.Errorf("the last of none begin after %d, %v, want 17", start, err)
	}
	for name, read := range map[string]struct {
		page func(after int64) ([]stream.Message, error)
		want int
	}{
		"stream": {func(after int64) ([]stream.Message, error) { return s.ReadPage(t.Context(), after, 1000, 3*size) }, total},
		"key": {func(after int64) ([]stream.Message, error) {
			return s.ReadKeyPage(t.Context(), "b", after, math.MaxInt64, 1000, 3*size)
		}, total / 3},
		"one at a time": {func(after int64) ([]stream.Message, error) { return s.ReadPage(t.Context(), after, 1000, 1) }, total},
		"up to": {func(after int64) ([]stream.Message, error) {
			return s.ReadKeyPage(t.Context(), "b", after, 5, 1000, 1)
		}, 2},
	} {
		after, got := int64(0), 0
		for {
			page, err := read.page(after)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(page) == 0 {
				break
			}
			if len(page) > 3 {
				t.Errorf("%s: a page of %d messages of %d bytes each, want at most 3", name, len(page), size)
			}
			got += len(page)
			after = page[len(page)-1].Position
		}
		if got != read.want {
			t.Errorf("%s: %d messages on all pages, want %d", name, got, read.want)
		}
	}
	for what, err := range map[string]error{
		"no bytes":    errOf(s.ReadPage(t.Context(), 0, 1, 0)),
		"no messages": errOf(s.ReadKeyPage(t.Context(), "a", 0, 1, 0, 1)),
	} {
		if !errors.Is(err, stream.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", what, err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestRead_AfterTheHighestPosition there can be is reading at the end.
func TestRead_AfterTheHighestPosition(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	mustAppend(t, a, stream.Message{Payload: []byte("x")})
	for _, after := range []int64{1, 2, math.MaxInt64 - 1, math.MaxInt64} {
		for how, err := range map[string]error{
			"Read": errOf(s.Read(t.Context(), after, 10)), "ReadPage": errOf(s.ReadPage(t.Context(), after, 10, 10)),
		} {
			if err != nil {
				t.Errorf("%s after %d: %v", how, after, err)
			}
		}
	}
}
