package room

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

// messagesOf returns the messages in frames: those of batches one by one, if there are batches.
func messagesOf(t *testing.T, frames []byte, batches bool) (messages []string) {
	t.Helper()
	for len(frames) > 0 {
		h, n, err := websocket.ParseHeader(frames)
		if err != nil || n == 0 {
			t.Fatalf("%d bytes that are no frame: %v", len(frames), err)
		}
		payload := frames[n : n+int(h.Length)]
		frames = frames[n+int(h.Length):]
		if h.RSV != 0 {
			in := io.MultiReader(bytes.NewReader(payload), strings.NewReader("\x00\x00\xff\xff\x01\x00\x00\xff\xff"))
			if payload, err = io.ReadAll(flate.NewReader(in)); err != nil {
				t.Fatal(err)
			}
		}
		text := string(payload)
		if list, isList := strings.CutPrefix(text, "["); batches && isList {
			for _, one := range strings.SplitAfter(strings.TrimSuffix(list, "]"), "}") {
				if one != "" {
					messages = append(messages, strings.TrimPrefix(one, ","))
				}
			}
			continue
		}
		messages = append(messages, text)
	}
	return messages
}

// TestPacker_AgainstTheLog: members of each form that have gone on at different speeds, skip their own messages, or begin later, get what
// plain members get.
func TestPacker_AgainstTheLog(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 4))
		r := &Room{hub: NewHub(Config{Compression: &websocket.Compression{}})}
		var members []*Member
		join := func() {
			m := &Member{room: r, form: form(random.IntN(int(forms))), pos: r.log.head}
			r.have[m.form]++
			members = append(members, m)
		}
		for range 6 {
			join()
		}
		var p packer
		now, wanted, got := time.Now(), make(map[*Member][]string), make(map[*Member][]byte)
		packs := 0
		for step := range 100 {
			for range random.IntN(30) {
				from := random.IntN(len(members))
				op, size := websocket.OpText, random.IntN(100)
				if random.IntN(20) == 0 {
					size = random.IntN(70_000)
				}
				if random.IntN(20) == 0 {
					op = websocket.OpBinary
				}
				text := fmt.Sprintf(`{"text":"%d %s"}`, step, strings.Repeat(string(rune('a'+random.IntN(26))), size))
				start := r.log.append(websocket.AppendFrame(nil, op, []byte(text)))
				for i, m := range members {
					if i == from {
						m.skip = append(m.skip, span{start, r.log.head})
						continue
					}
					wanted[m] = append(wanted[m], text)
				}
			}
			if random.IntN(20) == 0 {
				join()
			}
			now = now.Add(time.Duration(random.IntN(15)) * time.Millisecond)
			p.look(r)
			p.pack(r.hub.cfg.Compression, now)
			s := share{room: r, packed: &p.packs, ready: p.ready}
			s.lookAt(&r.log)
			oldest := r.log.head
			for _, m := range members {
				for left := random.IntN(8); left > 0 && m.pos < s.end(m); left-- {
					part, whole := s.nextFor(m)
					if whole != nil {
						packs++
						got[m], m.pos = append(got[m], whole.frame...), whole.end
						continue
					}
					n := frameEndIn(part, random)
					got[m], m.pos = append(got[m], part[:n]...), m.pos+int64(n)
				}
				if step%25 == 24 || random.IntN(50) == 0 { // it lags too far; now and then all do
					wanted[m] = wanted[m][:len(messagesOf(t, got[m], m.form == batch))]
					m.pos, m.skip = r.log.head, m.skip[:0]
				}
				oldest = min(oldest, m.pos)
			}
			r.log.release(oldest)
			p.release(oldest)
		}
		p.look(r)
		p.pack(r.hub.cfg.Compression, now.Add(time.Hour))
		s := share{room: r, packed: &p.packs, ready: p.ready}
		s.lookAt(&r.log)
		for i, m := range members {
			for m.pos < s.end(m) {
				part, whole := s.nextFor(m)
				if got[m] = append(got[m], part...); whole != nil {
					m.pos = whole.end
					continue
				}
				m.pos += int64(len(part))
			}
			messages := messagesOf(t, got[m], m.form == batch)
			if a, b := strings.Join(messages, "\n"), strings.Join(wanted[m], "\n"); a != b {
				t.Fatalf("seed %d: member %d of form %d got %d messages, want %d, or others", seed, i, m.form, len(messages), len(wanted[m]))
			}
		}
		if packs == 0 {
			t.Errorf("seed %d: no pack was used", seed)
		}
	}
}

// frameEndIn is the end of some frame: a socket takes any number of frames.
func frameEndIn(frames []byte, random *rand.Rand) (end int) {
	for end < len(frames) {
		h, n, _ := websocket.ParseHeader(frames[end:])
		if end += n + int(h.Length); random.IntN(3) == 0 {
			break
		}
	}
	return end
}

// TestPacker_Gathers: a message after a quiet time is packed at once, and those that follow wait until the pause is over. Text messages
// are packed together, and a binary one is alone.
func TestPacker_Gathers(t *testing.T) {
	t.Parallel()
	r := &Room{hub: NewHub(Config{})}
	r.have[batch] = 1000
	with := &websocket.Compression{}
	say := func(op websocket.Opcode, n int) {
		for i := range n {
			r.log.append(websocket.AppendFrame(nil, op, fmt.Appendf(nil, `{"type":"chat","text":"chat number %d"}`, i)))
		}
	}
	var p packer
	pack := func(now time.Time) (sizes []int) {
		before := len(p.packs[batch])
		p.look(r)
		p.pack(with, now)
		for _, one := range p.packs[batch][before:] {
			sizes = append(sizes, one.messages)
		}
		return sizes
	}
	start := time.Now()
	say(websocket.OpText, 12)
	if got := fmt.Sprint(pack(start)); got != "[12]" || p.waits {
		t.Errorf("at first: packs of %s, waits %t", got, p.waits)
	}
	say(websocket.OpText, 12)
	if got := fmt.Sprint(pack(start.Add(gatherPause / 2))); got != "[]" || !p.waits {
		t.Errorf("within the pause: packs of %s, waits %t", got, p.waits)
	}
	say(websocket.OpBinary, 1)
	say(websocket.OpText, 40)
	if got := fmt.Sprint(pack(start.Add(gatherPause))); got != "[12 31 9]" || p.waits {
		t.Errorf("after the pause: packs of %s, waits %t", got, p.waits)
	}
	if p.release(r.log.head); len(p.packs[batch]) > 0 {
		t.Errorf("%d packs are left", len(p.packs[batch]))
	}
}
