package tidewire

import "fmt"

// batches reports whether r may share a request.
func (c *Client) batches(r *request) bool {
	return !c.opts.NoBatch && r.members == nil && !r.alone && r.sequence < 0 && r.send != nil && r.send.good && r.send.kind == "publish" && !r.send.several
}

// gather puts r and those after it that go to the same place into one request. It returns how many of rest it has taken.
func (c *Client) gather(r *request, rest []*request) (*request, int) {
	most := batchMessages
	if c.limits.Messages > 0 {
		most = min(most, c.limits.Messages)
	}
	room := batchBytes
	if c.limits.MessageBytes > 0 {
		room = min(room, c.limits.MessageBytes*3/4)
	}
	n, size := 0, r.size
	members := []*request(nil)
	for _, m := range rest {
		if !m.finished {
			if !c.batches(m) || m.send.name != r.send.name || m.send.key != r.send.key || size+m.size > room || len(members)+1 >= most {
				break
			}
			if members == nil {
				members = append(members, r)
			}
			members = append(members, m)
			size += m.size
		}
		n++
	}
	if members == nil {
		return r, 0
	}
	return newBatch(members), n
}

// newBatch returns the request that members share.
func newBatch(members []*request) *request {
	first := members[0]
	s := &sending{kind: "publish", name: first.send.name, key: first.send.key, several: true, messages: make([]outgoing, len(members))}
	for i, m := range members {
		s.messages[i] = m.send.messages[0]
	}
	batch := &request{order: first.order, sequence: -1, numbered: true, send: s, members: members, open: len(members), done: make(chan struct{})}
	for _, m := range members {
		m.batch = batch
	}
	return batch
}

// oversize takes a request that is larger in its encoding than the server takes. It returns the parts to be sent in its place: none if it has
// failed.
func (c *Client) oversize(r *request, size int) []*request {
	c.mu.Lock()
	defer c.unlock()
	delete(c.sent, r.id)
	switch {
	case r.finished:
		return nil
	case r.written: // on an earlier connection, to a server that took more
		c.finish(r, unknown(fmt.Sprintf("it was sent before, and has %d bytes on the wire, and now the server takes %d", size, c.limits.MessageBytes), nil))
		return nil
	case len(r.members) == 0:
		c.finish(r, local("too_big", "the message has %d bytes on the wire, and the server takes %d", size, c.limits.MessageBytes))
		return nil
	}
	var parts []*request
	for _, some := range c.halves(r) {
		parts = c.number(parts, some)
	}
	return parts
}

// halves ends a batch, and returns what has two parts of its messages. The caller holds the lock.
func (c *Client) halves(r *request) (parts []*request) {
	members := c.disband(r)
	for _, some := range [][]*request{members[:len(members)/2], members[len(members)/2:]} {
		switch len(some) {
		case 0:
		case 1:
			parts = append(parts, some[0])
		default:
			parts = append(parts, newBatch(some))
		}
	}
	return parts
}

// disband ends a batch without an answer, and returns its messages that have not ended. The caller holds the lock.
func (c *Client) disband(r *request) (members []*request) {
	r.finished = true
	close(r.done)
	for _, m := range r.members {
		m.batch = nil
		if !m.finished {
			members = append(members, m)
		}
	}
	return members
}

// split sends each message of a batch alone, although none of them looked bad: the server has refused one of them. The caller holds the lock.
func (c *Client) split(r *request) {
	for _, m := range c.disband(r) {
		m.alone = true
		c.ready.insert(m)
	}
	c.wake()
}

// settle gives the members of a batch their positions. The caller holds the lock.
func (c *Client) settle(r *request) {
	for i, m := range r.members {
		m.answer = answer{position: r.answer.position + int64(i), count: 1, partition: r.answer.partition, duplicate: r.answer.duplicate, has: true}
	}
	c.finish(r, nil)
}
