package gateway

import (
	"strconv"
	"strings"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// repeatHeader names a request, so that it can be repeated: a client and a sequence, as in a body, with a colon between them.
const repeatHeader = "Idempotency-Key"

// requestID returns the RequestID of the call, from its header or its body, or nil.
func (c *call) requestID() (*engine.RequestID, *problem) {
	key := c.r.Header.Get(repeatHeader)
	if key == "" {
		return c.body.requestID(c.caller)
	}
	if c.body.Client != "" || c.body.Has(wire.FieldSequence) {
		return nil, wrong(engine.CodeInvalid, "client", "either the header "+repeatHeader+", or client and sequence")
	}
	at := strings.LastIndexByte(key, ':')
	sequence, err := strconv.ParseInt(key[at+1:], 10, 64)
	if at < 0 || err != nil {
		return nil, wrong(engine.CodeInvalid, repeatHeader, "the name of a client, a colon and a number, such as till-3:17")
	}
	named := request{wire.Request{Client: key[:at], Sequence: sequence, Given: wire.Of(wire.FieldClient, wire.FieldSequence)}}
	return named.requestID(c.caller)
}
