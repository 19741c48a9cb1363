package bench

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/tidewire/tidewire/websocket"
)

const (
	// compressedRSV marks a compressed message.
	compressedRSV = 4
	// maxOpened is how many compressed messages are kept. All members of a room get the same ones within a short time.
	maxOpened = 1024
	// maxInflated bounds a message after inflating, in bytes.
	maxInflated = 4 << 20
)

// inflateEnd is what a sender leaves out at the end of a compressed message, and a final block.
var inflateEnd = []byte{0, 0, 0xff, 0xff, 1, 0, 0, 0xff, 0xff}

// handshake is that of the clients.
func (c ChatConfig) handshake() func(net.Conn, *url.URL) ([]byte, error) {
	if !c.Compress {
		return websocket.ClientHandshake
	}
	return func(conn net.Conn, u *url.URL) ([]byte, error) {
		compressed, leftover, err := websocket.ClientHandshakeCompressed(conn, u)
		if err == nil && !compressed {
			err = errors.New("the server does not accept compression (permessage-deflate)")
		}
		return leftover, err
	}
}

// opened is the content of a message of the server.
type opened struct {
	packed []byte   // the compressed message
	texts  [][]byte // what identifies each of its chats
	held   int      // how many of them were sent in the hold
	others [][]byte // messages that are not chats
}

// openedFrames are the compressed messages that arrived last. A message that is there byte by byte is not inflated again, so every
// client's deliveries are counted from what that client got.
type openedFrames struct {
	seed  maphash.Seed
	by    map[uint64]*opened
	order []uint64 // of arrival
}

// of returns the content of a compressed message.
func (o *openedFrames) of(packed []byte, read func(message []byte) *opened) (*opened, error) {
	if o.by == nil {
		o.seed, o.by = maphash.MakeSeed(), make(map[uint64]*opened)
	}
	key := maphash.Bytes(o.seed, packed)
	if known := o.by[key]; known != nil && bytes.Equal(known.packed, packed) {
		return known, nil
	}
	message, err := inflateMessage(packed)
	if err != nil {
		return nil, err
	}
	got := read(message)
	got.packed = bytes.Clone(packed)
	if len(o.order) >= maxOpened {
		delete(o.by, o.order[0])
		o.order = o.order[1:]
	}
	o.by[key] = got
	o.order = append(o.order, key)
	return got, nil
}

func inflateMessage(packed []byte) ([]byte, error) {
	in := flate.NewReader(io.MultiReader(bytes.NewReader(packed), bytes.NewReader(inflateEnd)))
	message, err := io.ReadAll(io.LimitReader(in, maxInflated+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("a compressed message of %d bytes: %w", len(packed), err)
	case len(message) > maxInflated:
		return nil, fmt.Errorf("a compressed message of more than %d bytes", maxInflated)
	}
	return message, nil
}

// compressed handles a compressed message.
func (c *chatRun) compressed(s *chatSession, packed []byte, now time.Duration) error {
	got, err := c.opened.of(packed, c.read)
	if err == nil {
		c.deliver(s, got, now)
	}
	return err
}

// read finds the chats of a message, which may be a batch. It refers to the message.
func (c *chatRun) read(message []byte) *opened {
	var list []json.RawMessage
	if len(message) == 0 || message[0] != '[' || json.Unmarshal(message, &list) != nil {
		list = []json.RawMessage{message}
	}
	got := &opened{}
	for _, one := range list {
		text := chatText(one, c.cfg.Payload)
		switch {
		case text == nil:
			got.others = append(got.others, one)
		default:
			got.texts = append(got.texts, text)
			if text[1] == inHold {
				got.held++
			}
		}
	}
	return got
}

// deliver counts the chats that a client got, and checks each if the client checks.
func (c *chatRun) deliver(s *chatSession, got *opened, now time.Duration) {
	c.mark.Deliveries += len(got.texts)
	c.clients[s.client].heard += got.held
	if s.check != nil {
		for _, text := range got.texts {
			c.check(s, text, now)
		}
	}
	for _, one := range got.others {
		c.message(s, one, now)
	}
}
