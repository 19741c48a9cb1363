package limits

import (
	"context"
	"errors"
	"testing"
)

// TestQuery: a user asks at most so many things at a time, on all its connections and by HTTP together; other users and API keys do not wait for it.
func TestQuery(t *testing.T) {
	t.Parallel()
	r := New(Config{UserQueries: 2})
	conn := func(of Client) *Conn {
		c := r.New()
		c.Handshake(of, false)
		t.Cleanup(c.Close)
		return c
	}
	ctx := t.Context()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	ann, phone := conn(Client{User: "ann"}), conn(Client{User: "ann"})
	first, err := ann.Query(ctx)
	second, err2 := phone.Query(ctx)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	by, _ := r.Begin(Client{User: "ann"})
	defer by.End()
	if _, err := by.Query(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a third one did not wait: %v", err)
	}
	waits := make(chan func())
	go func() {
		end, err := ann.Query(ctx)
		if err != nil {
			t.Error(err)
		}
		waits <- end
	}()
	for range 5 {
		for _, other := range []*Conn{conn(Client{User: "bob"}), conn(Client{User: "key", Service: true}), nil} {
			end, err := other.Query(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if other == nil || other.at.user == "" {
				defer end()
			} else {
				end()
			}
		}
	}
	select {
	case <-waits:
		t.Error("a third one did not wait")
	default:
	}
	first()
	(<-waits)()
	second()
}
