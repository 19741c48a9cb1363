package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// FuzzParseRequest compares the stored message of a publish with its decoded JSON
// fields.
func FuzzParseRequest(f *testing.F) {
	for _, text := range []string{
		`{"type":"publish","id":1,"stream":"s","payload":"p","key":"k","headers":{"a":1}}`,
		`{"type":"publish","id":"x","stream":"s","messages":[{"payload":"p"},{"payload_base64":"YQ=="}]}`,
		`{"type":"subscribe","stream":"s","at":"2026-01-01T00:00:00Z","credits":5}`, `{"id":{}}`, `{"payload":null}`,
		"{\"payload\":\"\xff\"}", `{"type":1,"id":7}`, ` {"delivery":"d","deliveries":[]}`, `[]`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := wire.Decoder{Limits: newDecoders(64).limits()}
		r, why := parseRequest(&d, text, wire.JSON)
		if why == nil && (!json.Valid(text) || !utf8.Valid(text)) {
			t.Fatalf("%q was taken", text)
		}
		if r.ID != nil && (!json.Valid(r.ID) || len(r.ID) > maxIDBytes) {
			t.Fatalf("id %q", r.ID)
		}
		if why != nil {
			if why.message() == "" {
				t.Fatalf("%q is refused without a word", text)
			}
			return
		}
		messages, why := r.messages(new([1]engine.Message))
		if (len(messages) == 0) != (why != nil) || len(messages) > maxBatch || why != nil && why.message() == "" {
			t.Fatalf("%d messages and %v", len(messages), why)
		}
		for _, m := range messages {
			for _, e := range []wire.Encoding{wire.JSON, wire.CBOR} {
				w := wire.Writer{Encoding: e}
				w.Open()
				writeBody(&w, &m)
				w.Close()
				back, why := parseRequest(&d, w.Buf, e)
				if why != nil {
					t.Fatalf("%q: %v", w.Buf, why)
				}
				again := back.One
				if again.Key != m.Key || !bytes.Equal(again.Payload, m.Payload) || (len(again.Headers) > 0) != (len(m.Headers) > 0) {
					t.Fatalf("%+v came back as %+v", m, again)
				}
			}
		}
		if tokens, why := r.tokens(); (len(tokens) == 0) != (why != nil) {
			t.Fatalf("tokens %q and %v", tokens, why)
		}
		if _, why := r.start(); why != nil && why.message() == "" {
			t.Fatal(why.code)
		}
	})
}

func TestCodes_HaveSentences(t *testing.T) {
	t.Parallel()
	for why := range statuses {
		if publicErrors[why] == "" {
			t.Errorf("%s has a status and no sentence", why)
		}
	}
	for _, err := range []error{engine.ErrNotFound, engine.ErrInvalid, engine.ErrExists, engine.ErrNotKeyed, &engine.TooOldError{Oldest: 5}, engine.ErrLeaseLost, engine.ErrOutcomeUnknown} {
		if why := codeOf(fmt.Errorf("wrapped: %w", err), "other"); why == "other" || publicErrors[why] == "" {
			t.Errorf("%v is told as %q", err, why)
		}
	}
}

func TestLeases_CountForgetsWhatHasEnded(t *testing.T) {
	t.Parallel()
	l, now := newLeases("", nil), time.Now()
	var ds []engine.Delivery
	for n := range 5 {
		ds = append(ds, engine.Delivery{Lease: n, Until: now.Add(time.Duration(n+1) * time.Second)})
	}
	tokens := l.put(ds)
	for _, one := range []struct {
		at   float64
		n    int
		next float64
	}{{0, 5, 1}, {0.9, 5, 1}, {1, 4, 2}, {2.5, 3, 3}} {
		at := now.Add(time.Duration(one.at * float64(time.Second)))
		if n, next := l.count(at); n != one.n || next.Sub(now).Seconds() != one.next {
			t.Errorf("after %v s: %d, next after %v", one.at, n, next.Sub(now))
		}
	}
	taken, lost := l.take(settlement{kind: "ack"}, []string{tokens[0], tokens[2], tokens[2]})
	if len(taken) != 1 || taken[0].own != 2 || !reflect.DeepEqual(lost, []string{tokens[0], tokens[2]}) {
		t.Errorf("took %v, lost %v", taken, lost)
	}
	// The next expiry was that of a removed lease; count notices that after the
	// expiry.
	if n, next := l.count(now.Add(3 * time.Second)); n != 2 || next.Sub(now) != 4*time.Second {
		t.Errorf("%d, next after %v", n, next.Sub(now))
	}
	if n, _ := l.count(now.Add(time.Minute)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// settling settles everything.
type settling struct{ engine.Queues }

func (settling) Extend(_ context.Context, leases []engine.Lease, _ time.Duration) []error { return nil }

// TestLeases_Extend: an extended lease keeps its credit until its new end.
func TestLeases_Extend(t *testing.T) {
	t.Parallel()
	l, now := newLeases("", nil), time.Now()
	tokens := l.put([]engine.Delivery{{Lease: 1, Until: now.Add(time.Second)}, {Lease: 2, Until: now.Add(time.Second)}})
	how := settlement{kind: "extend", lease: time.Hour}
	taken, _ := l.take(how, tokens[:1])
	if lost, failed, err := l.settle(t.Context(), settling{}, how, taken); len(lost)+len(failed) > 0 || err != nil {
		t.Fatal(lost, failed, err)
	}
	if n, next := l.count(now.Add(time.Minute)); n != 1 || next.Before(now.Add(time.Hour)) {
		t.Errorf("%d, next after %v; want the one that was extended, after an hour", n, next.Sub(now))
	}
	if n, _ := l.count(now.Add(2 * time.Hour)); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestCredits_NeverMoreThanGiven(t *testing.T) {
	t.Parallel()
	c := newCredits(true, 3)
	if got, _ := c.take(t.Context(), 2); got != 2 {
		t.Errorf("took %d", got)
	}
	if c.add(maxCredits) || c.add(0) || !c.add(maxCredits-1) {
		t.Error("the bound is wrong")
	}
	if got, _ := c.take(t.Context(), 5); got != 5 {
		t.Errorf("took %d", got)
	}
	free := newCredits(false, 0)
	if got, _ := free.take(t.Context(), 1000); got != 1000 || free.add(1) {
		t.Errorf("without a bound: %d", got)
	}
}
