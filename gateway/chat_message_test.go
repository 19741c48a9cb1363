package gateway

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzParseChat compares the parser with a plain map: what it accepts must be
// an object with those values, and an ID is a scalar of the object.
func FuzzParseChat(f *testing.F) {
	for _, seed := range []string{
		`{"type":"join","room":"r","user":"u"}`, `{"type":"chat","text":"x","ts":1.5,"id":"a"}`, `{"type":"ping","ts":null}`,
		`{"type":"join","presence":true,"on_lag":"disconnect"}`, `{"type":"join","presence":null}`, `{"type":"join","presence":"yes","id":1}`,
		`{"id":7}`, `[]`, `{`, `{"TYPE":"chat","type":7}`, `{"id":{}}`, ` {"type":"leave","room":null}`, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := parseChat(payload)
		var plain map[string]any
		valid := json.Unmarshal(payload, &plain) == nil && plain != nil
		if err == nil && !valid {
			t.Fatalf("accepted %q, which is no object", payload)
		}
		if err == nil && m.Type == "chat" && m.Text == nil {
			t.Fatalf("accepted a chat without text: %q", payload)
		}
		if m.ID == nil {
			return
		}
		var id any
		if json.Unmarshal(m.ID, &id) != nil {
			t.Fatalf("ID %q of %q is no JSON", m.ID, payload)
		}
		switch id.(type) {
		case string, float64:
		default:
			t.Fatalf("ID %q of %q is no scalar", m.ID, payload)
		}
	})
}

func TestBucket_RefillsContinuously(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(ChatConfig{RateLimit: 10, RateBurst: 10}, time.Now())
		for i := range 10 {
			if _, ok := b.take(time.Now()); !ok {
				t.Fatalf("no token %d of the first 10", i+1)
			}
		}
		wait, ok := b.take(time.Now())
		if ok || wait <= 0 || wait > 100*time.Millisecond {
			t.Fatalf("11th at once: %v, wait %v, want about 100 ms", ok, wait)
		}
		time.Sleep(wait + time.Microsecond)
		if _, ok := b.take(time.Now()); !ok {
			t.Error("no token after the wait")
		}
		time.Sleep(time.Hour)
		taken := 0
		for {
			if _, ok := b.take(time.Now()); !ok {
				break
			}
			taken++
		}
		if taken != 10 {
			t.Errorf("%d tokens after an hour, want the burst of 10", taken)
		}
	})
}
