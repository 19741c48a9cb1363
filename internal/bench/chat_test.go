package bench

import (
	"context"
	"testing"
	"time"
)

func runChat(t *testing.T, cfg ChatConfig) ChatResult {
	t.Helper()
	r, err := RunChat(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestChatCheck_ReportsOrder(t *testing.T) {
	t.Parallel()
	var h chatHistory
	for n := range 6 { // two clients in turn, a second apart
		h.add(n%2, 0, time.Duration(n)*time.Second)
	}
	c := newChatCheck(2, 3, 0)
	c.joined = 0
	for _, n := range []int{0, 2, 1, 3, 5, 5} { // 1 after 2 is another client's
		c.arrived(n%2, n)
	}
	c.arrived(0, 4)
	c.arrived(0, 2)
	if d := c.finish(&h, 0, 10*time.Second); d != (Deliveries{Expected: 6, Received: 6, Duplicated: 2}) {
		t.Errorf("%+v", d)
	}
	c = newChatCheck(2, 3, 0)
	c.joined = time.Second
	c.arrived(1, 3)
	c.arrived(1, 1)
	if d := c.finish(&h, 0, 4*time.Second); d != (Deliveries{Expected: 3, Received: 2, Reordered: 1}) {
		t.Errorf("%+v", d) // of 1, 2, 3; 2 is missing
	}
}
