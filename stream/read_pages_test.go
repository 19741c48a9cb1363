package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

// held is the size of a message for ReadPage.
func held(m stream.Message) int { return 128 + len(m.Key) + len(m.Headers) + len(m.Payload) }

// TestReadPage_BoundedByBytes reads streams of large and small messages page by
// page: no page exceeds its bound, except with one larger message alone, and
// nothing is missing.
func TestReadPage_BoundedByBytes(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	const messages, bound = 40, 100_000
	for n := range messages {
		m := stream.Message{Key: "k", Payload: fmt.Append(nil, n)}
		switch n % 4 {
		case 1:
			m.Payload = bytes.Repeat([]byte{byte(n)}, 30_000)
		case 2:
			m.Headers = json.RawMessage(fmt.Sprintf(`{"h": "%060000d"}`, n))
		case 3:
			m.Payload = bytes.Repeat([]byte{byte(n)}, 3*bound)
		}
		mustAppend(t, a, m)
		mustAppend(t, a, stream.Message{Key: "other", Payload: make([]byte, 1000)})
	}
	through := func(what string, want int, read func(after int64) ([]stream.Message, error)) {
		t.Helper()
		after, all := int64(0), 0
		for {
			page, err := read(after)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			total := 0
			for _, m := range page {
				total += held(m)
				if m.Position <= after {
					t.Errorf("%s: position %d after %d", what, m.Position, after)
				}
				after = m.Position
			}
			if len(page) > 1 && total > bound || len(page) > 7 {
				t.Errorf("%s: a page of %d messages and %d bytes, want at most 7 and %d", what, len(page), total, bound)
			}
			all += len(page)
		}
		if all != want {
			t.Errorf("%s: %d messages, want %d", what, all, want)
		}
	}
	through("ReadPage", 2*messages, func(after int64) ([]stream.Message, error) {
		return s.ReadPage(t.Context(), after, 7, bound)
	})
	through("ReadKeyPage", messages, func(after int64) ([]stream.Message, error) {
		return s.ReadKeyPage(t.Context(), "k", after, math.MaxInt64, 7, bound)
	})
	through("ReadKeyPage up to a position", messages/2, func(after int64) ([]stream.Message, error) {
		return s.ReadKeyPage(t.Context(), "k", after, messages, 7, bound)
	})
	through("a key that is not there", 0, func(after int64) ([]stream.Message, error) {
		return s.ReadKeyPage(t.Context(), "none", after, math.MaxInt64, 7, bound)
	})
	for what, read := range map[string]func(limit, bytes int) error{
		"ReadPage": func(limit, bytes int) error { _, err := s.ReadPage(t.Context(), 0, limit, bytes); return err },
		"ReadKeyPage": func(limit, bytes int) error {
			_, err := s.ReadKeyPage(t.Context(), "k", 0, 1, limit, bytes)
			return err
		},
	} {
		if err := errors.Join(read(0, 1), read(1, 0)); !errors.Is(read(0, 1), stream.ErrInvalid) || !errors.Is(read(1, 0), stream.ErrInvalid) {
			t.Errorf("%s without a bound: %v, want ErrInvalid", what, err)
		}
	}
}

// TestKeyStart: the messages after it are those that LastKey returns.
func TestKeyStart(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for n := range 30 {
		mustAppend(t, a, stream.Message{Key: []string{"a", "b", ""}[n%3], Payload: fmt.Append(nil, n)})
	}
	for _, upTo := range []int64{0, 1, 15, 16, 30, 1000, math.MaxInt64} {
		for _, n := range []int{1, 2, 10, 1000} {
			for _, key := range []string{"a", "b", "none"} {
				want, err := s.LastKey(t.Context(), key, upTo, n)
				if err != nil {
					t.Fatal(err)
				}
				after, err := s.KeyStart(t.Context(), key, upTo, n)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.ReadKeyPage(t.Context(), key, after, upTo, 1000, 1<<20)
				wantPayloads(t, fmt.Sprintf("last %d of %q up to %d", n, key, upTo), payloads(t, got, err), payloads(t, want, nil)...)
				if len(want) == 0 && after != upTo {
					t.Errorf("nothing up to %d comes after %d", upTo, after)
				}
			}
		}
	}
	if _, err := s.KeyStart(t.Context(), "a", 10, 0); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("none: %v, want ErrInvalid", err)
	}
}

// TestKeyFromEnd: it is the position of the first of the messages that LastKey returns, if these are as many.
func TestKeyFromEnd(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{})
	for n := range 30 {
		mustAppend(t, a, stream.Message{Key: []string{"a", "b", ""}[n%3], Payload: fmt.Append(nil, n)})
	}
	for _, after := range []int64{0, 1, 15, 30, 1000} {
		for _, n := range []int{1, 2, 9, 10, 11, 1000} {
			for _, key := range []string{"a", "b", "none"} {
				all, err := s.LastKey(t.Context(), key, math.MaxInt64, n)
				if err != nil {
					t.Fatal(err)
				}
				want := int64(0)
				if len(all) == n && all[0].Position > after {
					want = all[0].Position
				}
				if got, err := s.KeyFromEnd(t.Context(), key, after, n); got != want || err != nil {
					t.Errorf("%d of %q from the end, after %d: %d, %v, want %d", n, key, after, got, err, want)
				}
			}
		}
	}
	if _, err := s.KeyFromEnd(t.Context(), "a", 0, 0); !errors.Is(err, stream.ErrInvalid) {
		t.Errorf("none: %v, want ErrInvalid", err)
	}
}
