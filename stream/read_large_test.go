package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/tidewire/tidewire/stream"
)

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
