package wire

import (
	"fmt"
	"unsafe"
)

// reader reads a message value by value. A method that finds another value than it is asked for notes why, and
// returns false; so do all calls after that. What a method returns is a part of the message, or not shared at all:
// it may be kept as long as the message does not change.
type reader interface {
	// object enters an object. name returns the name of its next field, whose value has to be read
	// next, and false at its end.
	object() bool
	name() (name []byte, ok bool)
	// array enters an array. element reports whether there is one more, which has to be read next.
	array() bool
	element() bool
	// null reads a null, if that is next.
	null() bool
	text() ([]byte, bool)
	// data reads bytes: the UTF-8 of a text, or a byte string where there are any.
	data() ([]byte, bool)
	integer() (int64, bool)
	boolean() (value, ok bool)
	// scalar reads a text or a number, and returns it as it is encoded.
	scalar() ([]byte, bool)
	// json reads any value and returns it as JSON. The value of an object begins with '{'.
	json() ([]byte, bool)
	// bytes reports whether the next value is a byte string.
	bytes() bool
	// skip reads any value.
	skip() bool
	// end reports whether nothing is left.
	end() bool

	failed() *Error
	// fail notes the first error, and ends reading. wants does so for a value that should be something else.
	fail(*Error)
	wants(what string)

	// ignore reads over the value of a field that does not exist. ignored is the first of these fields, or nil.
	ignore(name []byte)
	ignored() *Error
}

// state is what readers of both encodings have.
type state struct {
	message []byte
	i       int // the next byte
	depth   int
	values  int
	limits  Limits
	err     *Error
	unknown *Error
}

func (s *state) failed() *Error  { return s.err }
func (s *state) ignored() *Error { return s.unknown }

// noteUnknown notes the first field that does not exist.
func (s *state) noteUnknown(name []byte) {
	if s.unknown == nil {
		s.unknown = &Error{Path: string(name), Text: "there is no such field here"}
	}
}

func (s *state) fail(e *Error) {
	if s.err == nil {
		s.err = e
	}
	s.i = len(s.message)
}

func (s *state) wants(what string) { s.fail(&Error{Text: "want " + what}) }

// begin counts a value.
func (s *state) begin() bool {
	if s.values++; s.values > s.limits.Values {
		s.fail(&Error{Text: fmt.Sprintf("more than %d values: send them in several messages", s.limits.Values)})
	}
	return s.err == nil
}

// enter counts an object or array around what follows.
func (s *state) enter() bool {
	if s.depth++; s.depth > s.limits.Depth {
		s.fail(&Error{Text: fmt.Sprintf("nested too deeply: want at most %d objects and arrays within each other", s.limits.Depth)})
	}
	return s.err == nil
}

// textOf returns the bytes as a string that shares their memory. Nobody may change them any more.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
