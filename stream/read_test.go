package stream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

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

// TestKeyStart: the messages after it are those that LastKey returns. KeyFromEnd is the position of the first of these, if they are as many.
func TestKeyStart(t *testing.T) {
	t.Parallel()
	db, s := ensure(t)
	var msgs []stream.Message
	for n := range 30 {
		msgs = append(msgs, stream.Message{Key: []string{"a", "b", ""}[n%3], Payload: fmt.Append(nil, n)})
	}
	mustAppend(t, run(t, db.Pool, s, stream.AppenderConfig{}), msgs...)
	for _, at := range []int64{0, 15, 16, 30, math.MaxInt64} {
		for _, n := range []int{1, 9, 10, 11} {
			for _, key := range []string{"a", "none"} {
				want, err := s.LastKey(t.Context(), key, at, n)
				must(t, err)
				after, err := s.KeyStart(t.Context(), key, at, n)
				must(t, err)
				got, err := s.ReadKeyPage(t.Context(), key, after, at, 1000, 1<<20)
				wantPayloads(t, fmt.Sprintf("last %d of %q up to %d", n, key, at), payloads(t, got, err), payloads(t, want, nil)...)
				if len(want) == 0 && after != at {
					t.Errorf("nothing up to %d comes after %d", at, after)
				}
				all, err := s.LastKey(t.Context(), key, math.MaxInt64, n)
				must(t, err)
				first := int64(0)
				if len(all) == n && all[0].Position > at {
					first = all[0].Position
				}
				if got, err := s.KeyFromEnd(t.Context(), key, at, n); got != first || err != nil {
					t.Errorf("%d of %q from the end, after %d: %d, %v, want %d", n, key, at, got, err, first)
				}
			}
		}
	}
	_, startErr := s.KeyStart(t.Context(), "a", 10, 0)
	_, endErr := s.KeyFromEnd(t.Context(), "a", 0, 0)
	if !errors.Is(startErr, stream.ErrInvalid) || !errors.Is(endErr, stream.ErrInvalid) {
		t.Errorf("none: %v, %v, want ErrInvalid", startErr, endErr)
	}
}

// TestWithMaxMessage: no read fetches a larger payload: a page ends before it, and a read that begins with it says which
// message that is and how large. A reader that goes on after it gets the rest.
func TestWithMaxMessage(t *testing.T) {
	t.Parallel()
	db, _ := ensure(t)
	for _, own := range []bool{false, true} {
		s := ensureWith(t, db.Pool, fmt.Sprint("large", own), stream.Options{Keyed: true, OwnTables: own})
		a := run(t, db.Pool, s, stream.AppenderConfig{})
		const limit, large = 10_000, 3_000_000
		for _, size := range []int{0, limit, large, 1, limit + 1, 2} {
			mustAppend(t, a, stream.Message{Key: "k", Payload: make([]byte, size)})
		}
		bounded := s.WithMaxMessage(limit)
		hub := stream.NewHub(db.Pool, stream.HubConfig{MaxMessage: limit})
		for what, read := range map[string]func(after int64) ([]stream.Message, error){
			"ReadPage": func(after int64) ([]stream.Message, error) { return bounded.ReadPage(t.Context(), after, 100, 1<<20) },
			"ReadKeyPage": func(after int64) ([]stream.Message, error) {
				return bounded.ReadKeyPage(t.Context(), "k", after, math.MaxInt64, 100, 1<<20)
			},
			"ReadRangePage": func(after int64) ([]stream.Message, error) {
				page, _, err := bounded.ReadRangePage(t.Context(), after, 100, 1<<20)
				return page, err
			},
			"Next": func(after int64) ([]stream.Message, error) {
				sub, err := hub.Subscribe(t.Context(), s, stream.After(after))
				if err != nil {
					return nil, err
				}
				defer sub.Close()
				if after == 6 {
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					sub.Next(ctx)
					return nil, nil
				}
				return sub.Next(t.Context())
			},
		} {
			var got []string
			for after := int64(0); ; {
				page, err := read(after)
				if tooLarge, is := errors.AsType[*stream.TooLargeError](err); is {
					got, after = append(got, fmt.Sprintf("%d has %d", tooLarge.Position, tooLarge.Size)), tooLarge.Position
					continue
				}
				if err != nil {
					t.Fatal(what, err)
				}
				if len(page) == 0 {
					break
				}
				for _, m := range page {
					after = m.Position
				}
				got = append(got, fmt.Sprint(len(page)))
			}
			if want := "[2 3 has 3000000 1 5 has 10001 1]"; fmt.Sprint(got) != want {
				t.Errorf("own tables %t: %s returns %v, want %s", own, what, got, want)
			}
		}
	}
}

// TestRead_WhatIsUnderWay: reads at the end of a stream that grows by batches larger
// than a window. The next query must not skip a message that was not committed when
// the previous one ran.
func TestRead_WhatIsUnderWay(t *testing.T) {
	t.Parallel()
	const batches, size = 25, 1500
	db, s := ensure(t)
	a := run(t, db.Pool, s, stream.AppenderConfig{MaxBatch: 1})
	hub, _ := runHub(t, db.Pool, stream.HubConfig{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var reading sync.WaitGroup
	for _, limit := range []int{100, 5000} {
		reading.Go(func() {
			for after := int64(0); after < batches*size; {
				page, err := s.Read(ctx, after, limit)
				if err != nil {
					t.Error(err)
					return
				}
				if after = contiguous(t, after, page); after < 0 {
					return
				}
			}
		})
	}
	sub, err := hub.Subscribe(ctx, s, stream.After(0))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	reading.Go(func() {
		for after := int64(0); after >= 0 && after < batches*size; {
			page, err := sub.Next(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			after = contiguous(t, after, page)
		}
	})
	batch := make([]stream.Message, size)
	for i := range batch {
		batch[i].Payload = []byte("x")
	}
	for range batches {
		mustAppend(t, a, batch...)
		hub.Notify(s)
	}
	reading.Wait()
}

// contiguous returns the last position of a page, or -1 if the page skips messages
// after position after.
func contiguous(t *testing.T, after int64, page []stream.Message) int64 {
	t.Helper()
	for _, m := range page {
		if m.Position != after+1 {
			t.Errorf("after position %d came %d", after, m.Position)
			return -1
		}
		after = m.Position
	}
	return after
}
