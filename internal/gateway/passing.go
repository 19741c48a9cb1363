package gateway

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// tellEvery is the least time between two messages that tell a client how far its subscription has read.
const tellEvery = time.Second

// unparted is the partition of a subscription to one stream.
const unparted = -1

// passing tells a client how far the server has read where the filter of its subscription has dropped messages: at
// most once in tellEvery, for each partition, and only after the last message that the client got.
type passing struct {
	sub    *subscriber
	stream string

	mu    sync.Mutex    // held while messages or positions are sent
	at    map[int]int64 // positions that are to be told, by partition
	told  time.Time     // when positions were told last
	timer *time.Timer   // tells; nil if there is nothing to tell
	ended bool
}

// after calls send, which sends messages of a partition, and notes the position up to which the filter has dropped
// everything after them: 0 if it has dropped nothing.
func (p *passing) after(partition int, passed int64, send func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := send(); err != nil {
		return err
	}
	if passed == 0 {
		delete(p.at, partition) // the last message tells more
		return nil
	}
	if p.at == nil {
		p.at = make(map[int]int64)
	}
	p.at[partition] = passed
	if p.timer != nil {
		return nil
	}
	rest := tellEvery - time.Since(p.told)
	if rest <= 0 {
		return p.tell()
	}
	p.timer = time.AfterFunc(rest, func() { p.sub.session.conn.guard(p.later) })
	return nil
}

// later tells what is to be told by now. What fails is noticed by the subscription itself.
func (p *passing) later() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	if !p.ended && len(p.at) > 0 {
		p.tell()
	}
}

// tell sends the positions. p.mu is held.
func (p *passing) tell() error {
	w, frames := wire.Writer{Encoding: p.sub.encoding}, []byte(nil)
	for _, partition := range slices.Sorted(maps.Keys(p.at)) {
		w.Buf = w.Buf[:0]
		writePosition(&w, p.stream, p.sub.name, partition, p.at[partition])
		frames = websocket.AppendFrame(frames, opcode(w.Encoding), w.Buf)
	}
	clear(p.at)
	p.told = time.Now()
	return p.sub.session.push(p.sub.ctx, frames)
}

// forget tells nothing more of a partition.
func (p *passing) forget(partition int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, partition)
}

// end tells nothing more. What is being told is sent first.
func (p *passing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
