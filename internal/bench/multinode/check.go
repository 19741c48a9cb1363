package multinode

import (
	"context"
	"fmt"

	"github.com/tidewire/tidewire/websocket"
)

// check reads everything once more, and compares it with what was acknowledged and received.
func (r *run) check(ctx context.Context) error {
	for _, name := range []string{stream, storedRoom, queue} {
		held, err := r.held(ctx, name)
		if err != nil {
			return err
		}
		r.ledger.compare(name, held)
		if name == stream {
			for _, s := range r.subscribers {
				s.compare(held)
			}
		}
		if name == storedRoom {
			for _, k := range r.keepers {
				k.compare(held)
			}
		}
	}
	depth, err := r.depth(ctx)
	if left := depth.left(); left != "" {
		r.ledger.Break(PromiseSettled, "in the end, %s", left)
	}
	return err
}

// depth returns how many messages the queue has.
func (r *run) depth(ctx context.Context) (d depth, err error) {
	_, address := r.load.pick(0)
	err = r.load.call(ctx, "GET", address, "/v1/queues/"+queue, nil, &d)
	return d, err
}

// held returns what is stored in the stream, the stored room or the queue.
func (r *run) held(ctx context.Context, name string) ([]stored, error) {
	_, address := r.load.pick(0)
	if name == storedRoom {
		return history(ctx, address)
	}
	return r.messages(ctx, address, name)
}

// messages reads a stream, or that of a queue, over HTTP.
func (r *run) messages(ctx context.Context, address, name string) (all []stored, err error) {
	for after := int64(0); ; {
		var page struct {
			Messages []struct {
				Position int64
				Payload  string
			}
			Next int64
		}
		if err := r.load.call(ctx, "GET", address, fmt.Sprintf("/v1/streams/%s/messages?limit=1000&after=%d", name, after), nil, &page); err != nil {
			return nil, err
		}
		for _, m := range page.Messages {
			c, err := parseContent(m.Payload)
			if err != nil {
				return nil, err
			}
			all = append(all, stored{m.Position, c})
		}
		if len(page.Messages) == 0 {
			return all, nil
		}
		after = page.Next
	}
}

// history reads the stored room as a new member.
func history(ctx context.Context, address string) (all []stored, err error) {
	conn, err := websocket.Dial(ctx, "ws://"+address+"/ws", websocket.Config{})
	if err != nil {
		return nil, err
	}
	defer conn.Abort()
	say(conn, `{"type":"join","id":0,"room":%q,"after":0}`, storedRoom)
	var failed error
	err = readRoom(conn, func(in roomMessage) bool {
		switch in.Type {
		case "chat":
			c, err := parseContent(in.Text)
			failed = err
			all = append(all, stored{in.Position, c})
			return err == nil
		case "error":
			failed = fmt.Errorf("join %s: %s", storedRoom, in.Code)
		}
		return in.Type != "ok" && failed == nil
	})
	if failed != nil {
		err = failed
	}
	return all, err
}
