package bench

import (
	"fmt"
	"testing"

	"github.com/tidewire/tidewire/websocket"
)

// TestOpenedFrames: each compressed message is inflated once, and one that differs in a byte again.
func TestOpenedFrames(t *testing.T) {
	t.Parallel()
	c := &chatRun{cfg: ChatConfig{Payload: 128, Compress: true}}
	chat := func(n int, mark byte) string {
		name := make([]byte, MinPayload)
		putName(name, 7, n)
		return fmt.Sprintf(chatFormat, 7, 1_700_000_000_000, mark, name) + "...." + chatEnd
	}
	read := 0
	open := func(message string) *opened {
		frame := (&websocket.Compression{Threshold: 1}).AppendFrame(nil, websocket.OpText, []byte(message))
		h, n, err := websocket.ParseHeader(frame)
		if err != nil || h.RSV != compressedRSV {
			t.Fatalf("%+v, %v", h, err)
		}
		got, err := c.opened.of(frame[n:], func(message []byte) *opened { read++; return c.read(message) })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	gap := `{"type":"gap","room":"public","missed":3}`
	batch := "[" + chat(1, inHold) + "," + chat(2, notInHold) + "," + gap + "," + chat(3, inHold) + "]"
	for range 3 {
		got := open(batch)
		if len(got.texts) != 3 || got.held != 2 || len(got.others) != 1 || string(got.others[0]) != gap {
			t.Fatalf("got %+v", got)
		}
		for i, text := range got.texts {
			if client, n, ok := parseName(text[2:]); !ok || client != 7 || n != i+1 {
				t.Errorf("chat %d is from %d, number %d, %t", i, client, n, ok)
			}
		}
	}
	if read != 1 {
		t.Errorf("read %d times, want once", read)
	}
	if got := open(chat(4, inHold)); len(got.texts) != 1 || got.held != 1 || read != 2 {
		t.Errorf("one chat: %+v, read %d times", got, read)
	}
	for n := range 2 * maxOpened {
		open(chat(100+n, inHold))
	}
	if len(c.opened.by) > maxOpened || len(c.opened.order) > maxOpened {
		t.Errorf("%d messages are kept", len(c.opened.by))
	}
	for _, bad := range []string{"", "\xff\xff\xff"} {
		if _, err := c.opened.of([]byte(bad), c.read); bad != "" && err == nil {
			t.Errorf("%q was inflated", bad)
		}
	}
}
