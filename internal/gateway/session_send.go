package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/websocket"
)

// answer queues an answer, if the request has an ID.
func (s *session) answer(r asked, with reply) {
	if r.ID == nil {
		return
	}
	with.ID = r.ID
	s.send(&with, r.Encoding)
}

func (s *session) ok(r asked, with reply) {
	with.Type = "ok"
	s.answer(r, with)
}

// refuse counts a message that had no effect, and answers with the reason.
func (s *session) refuse(r asked, why code) { s.refuseFor(r, because(why)) }

// refuseFor is refuse for a problem that may have its own text.
func (s *session) refuseFor(r asked, why *problem) {
	s.server.ignored.Add(1)
	s.server.chats.audit.denied(s.conn.address, "", s.conn.identity.caller.Load(), why)
	s.answer(r, why.reply())
}

// fail is refuse for an error of a store.
func (s *session) fail(r asked, err error, otherwise code) {
	if errors.Is(err, errRefused) {
		return
	}
	with := explained(err, otherwise)
	if with.Code == engine.CodeNotFound && with.Message == publicErrors[with.Code] {
		with.Message = r.object.missing()
	}
	if needsWarning(with.Code, otherwise) {
		s.server.log.warn("request failed", "type", r.Type, "error", err)
	}
	s.server.ignored.Add(1)
	s.answer(r, with)
}

// send queues an answer; it is sent with the others of this read, or flushed
// later. If the peer reads so slowly that the answer does not fit into the
// queue, the connection is aborted.
func (s *session) send(v *reply, e wire.Encoding) {
	w := s.server.writer(e)
	v.write(w)
	if errors.Is(s.conn.Queue(opcode(e), w.Buf), websocket.ErrSlowReader) {
		s.conn.Abort()
	}
	s.server.reuse(w)
}

// push writes on the bulk lane. It closes the connection if the peer reads
// nothing.
func (s *session) push(ctx context.Context, frames []byte) error {
	err := s.conn.WriteBulkFrames(ctx, frames)
	if errors.Is(err, websocket.ErrSlowReader) {
		s.conn.StartClose(websocket.StatusPolicyViolation, "reads too slowly")
		s.slow.Store(true)
		s.conn.SetReadDeadline(time.Now())
	}
	return err
}

// pushStart answers a request for messages on the bulk lane, like the messages:
// on another lane the answer might arrive after the first of them.
func (s *session) pushStart(ctx context.Context, r asked, with reply) error {
	if r.ID == nil {
		return nil
	}
	with.Type, with.ID = "ok", r.ID
	err := s.push(ctx, with.frame(r.Encoding))
	if err != nil {
		s.answer(r, refusal(codeEnded))
	}
	return err
}

// pushEnd sends the end of a subscription or consumption, after its messages.
func (s *session) pushEnd(v reply, e wire.Encoding) {
	s.push(s.ctx, v.frame(e))
}

// opcode returns the kind of WebSocket message for an encoding.
func opcode(e wire.Encoding) websocket.Opcode {
	if e == wire.CBOR {
		return websocket.OpBinary
	}
	return websocket.OpText
}

// frame returns the answer as a WebSocket frame.
func (r *reply) frame(e wire.Encoding) []byte {
	w := wire.Writer{Encoding: e}
	r.write(&w)
	return websocket.AppendFrame(nil, opcode(e), w.Buf)
}
