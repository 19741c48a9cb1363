package websocket

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// StatusCode is the status code of a Close frame. Applications may use 3000 to
// 3999 (registered) and 4000 to 4999 (private).
type StatusCode int

// The codes of RFC 6455 and of the IANA registry.
const (
	StatusNormal             StatusCode = 1000
	StatusGoingAway          StatusCode = 1001
	StatusProtocolError      StatusCode = 1002
	StatusUnsupportedData    StatusCode = 1003
	StatusNone               StatusCode = 1005 // never sent: the peer's Close frame had no code
	StatusInvalidPayload     StatusCode = 1007
	StatusPolicyViolation    StatusCode = 1008
	StatusTooBig             StatusCode = 1009
	StatusMandatoryExtension StatusCode = 1010
	StatusInternalError      StatusCode = 1011
	StatusServiceRestart     StatusCode = 1012
	StatusTryAgainLater      StatusCode = 1013
	StatusBadGateway         StatusCode = 1014
)

// sendable reports whether a Close frame may carry the code.
func (c StatusCode) sendable() bool {
	switch {
	case c >= 1000 && c <= 1003, c >= 1007 && c <= 1014, c >= 3000 && c <= 4999:
		return true
	}
	return false
}

// CloseError is Read's error once the peer's Close frame has arrived.
type CloseError struct {
	Code   StatusCode // StatusNone if the frame had none
	Reason string     // UTF-8, at most 123 bytes
}

func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("websocket: peer closed with %d", e.Code)
	}
	return fmt.Sprintf("websocket: peer closed with %d: %s", e.Code, e.Reason)
}

// ProtocolError is Read's error when the peer broke the protocol or a limit.
// When Read returns it, a Close frame with the same code and reason is sent.
type ProtocolError struct {
	Code   StatusCode // StatusProtocolError, StatusInvalidPayload, StatusTooBig or StatusPolicyViolation
	Reason string
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("websocket: failed with %d: %s", e.Code, e.Reason)
}

// Protocol errors of a peer. The reason is sent in the Close frame.
var (
	errReserved          = &ProtocolError{StatusProtocolError, "reserved bits set"}
	errOpcode            = &ProtocolError{StatusProtocolError, "reserved opcode"}
	errFragmentedControl = &ProtocolError{StatusProtocolError, "fragmented control frame"}
	errLongControl       = &ProtocolError{StatusProtocolError, "control frame over 125 bytes"}
	errLength            = &ProtocolError{StatusProtocolError, "length not in its shortest form"}
	errUnmasked          = &ProtocolError{StatusProtocolError, "frame from client not masked"}
	errMasked            = &ProtocolError{StatusProtocolError, "frame from server masked"}
	errContinuation      = &ProtocolError{StatusProtocolError, "continuation without a message"}
	errInterleaved       = &ProtocolError{StatusProtocolError, "new message inside another"}
	errClosePayload      = &ProtocolError{StatusProtocolError, "close frame of one byte"}
	errCloseCode         = &ProtocolError{StatusProtocolError, "invalid close code"}
	errCloseReason       = &ProtocolError{StatusInvalidPayload, "close reason is not UTF-8"}
	errText              = &ProtocolError{StatusInvalidPayload, "text is not UTF-8"}
	errTooBig            = &ProtocolError{StatusTooBig, "message too big"}
)

// AppendClose appends an unmasked Close frame. It truncates the reason to 123
// bytes, at a rune boundary. A code that must not be sent, such as 0 or
// StatusNone, results in a frame without code and reason.
func AppendClose(dst []byte, code StatusCode, reason string) []byte {
	return AppendFrame(dst, OpClose, closePayload(nil, code, reason))
}

func closePayload(dst []byte, code StatusCode, reason string) []byte {
	if !code.sendable() {
		return dst
	}
	if len(reason) > MaxControl-2 {
		n := MaxControl - 2
		for n > 0 && !utf8.RuneStart(reason[n]) {
			n--
		}
		reason = reason[:n]
	}
	return append(binary.BigEndian.AppendUint16(dst, uint16(code)), reason...)
}

// parseClose turns the payload of a Close frame into Read's error: a
// *CloseError, or a *ProtocolError if the payload is wrong.
func parseClose(payload []byte) error {
	switch len(payload) {
	case 0:
		return &CloseError{Code: StatusNone}
	case 1:
		return errClosePayload
	}
	code := StatusCode(binary.BigEndian.Uint16(payload))
	if !code.sendable() {
		return errCloseCode
	}
	if !utf8.Valid(payload[2:]) {
		return errCloseReason
	}
	return &CloseError{Code: code, Reason: string(payload[2:])}
}
