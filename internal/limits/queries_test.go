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

// TestQuery_Forgotten: a user whose connections have ended is not forgotten while one of its requests asks, so that nobody asks more by connecting anew.
func TestQuery_Forgotten(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, rate := range []float64{0, 1e9} { // with a rate, a user is remembered for a while
		r := New(Config{UserQueries: 1, RequestRate: rate})
		connect := func() *Conn {
			c := r.New()
			c.Handshake(Client{User: "ann"}, false)
			return c
		}
		first := connect()
		end, err := first.Query(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		second := connect()
		for _, c := range []*Conn{first, second} {
			if _, err := c.Query(ended); err == nil {
				t.Error("a second request asks while the first does")
			}
		}
		end()
		if end, err = second.Query(t.Context()); err != nil {
			t.Fatal(err)
		}
		second.Close()
		end()
		if rate == 0 && len(r.users) > 0 {
			t.Errorf("%d users are remembered", len(r.users))
		}
	}
}
