package stream

import (
	"bytes"
	"testing"
	"time"
)

func somePage(payloads ...string) (p tailPage) {
	for i, payload := range payloads {
		m := Message{Position: 1<<40 + int64(i), Key: payload, Payload: []byte(payload), Time: time.UnixMicro(-5)}
		p.messages = append(p.messages, m)
		p.bytes += m.held()
	}
	return p
}

// FuzzPage: what decodes is a page that encodes and decodes to the same, and has memory in proportion.
func FuzzPage(f *testing.F) {
	f.Add(appendPage(nil, tailPage{}, 0))
	f.Add(appendPage(nil, tailPage{}, 1<<62))
	f.Add(appendPage(nil, somePage("", "a", "bcd"), 0))
	f.Add([]byte{pageFormat, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1})
	f.Add([]byte{pageFormat, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		p, last, err := decodePage(encoded)
		if err != nil {
			return
		}
		if len(p.messages) > len(encoded) {
			t.Fatalf("%d messages of %d bytes", len(p.messages), len(encoded))
		}
		for i, m := range p.messages {
			if m.Position < 1 || i > 0 && m.Position != p.messages[i-1].Position+1 || m.Payload == nil {
				t.Fatalf("message %d: %+v", i, m)
			}
		}
		again := appendPage(nil, p, last)
		q, lastAgain, err := decodePage(again)
		if err != nil || lastAgain != last || q.bytes != p.bytes || !bytes.Equal(appendPage(nil, q, lastAgain), again) {
			t.Fatalf("%+v, %d, %v, want %+v, %d", q, lastAgain, err, p, last)
		}
	})
}

// TestPage_Cut: no part of an encoded page decodes.
func TestPage_Cut(t *testing.T) {
	t.Parallel()
	whole := appendPage(nil, somePage("", "a", "bcd"), 0)
	for n := range whole {
		if p, _, err := decodePage(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes: %+v", n, len(whole), p)
		}
	}
	if _, _, err := decodePage(append(whole, 0)); err == nil {
		t.Error("with one byte more")
	}
}
