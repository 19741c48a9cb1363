package wire

import "fmt"

// Encoding is how a message is encoded.
type Encoding uint8

// The encodings of messages.
const (
	// JSON is RFC 8259. Bytes that are no text are base64, in a field of their own.
	JSON Encoding = iota
	// CBOR is RFC 8949, with the names and types of JSON. Payloads are byte strings.
	CBOR
)

// EncodingOf returns the encoding of a name: json or cbor.
func EncodingOf(name string) Encoding {
	if name == "cbor" {
		return CBOR
	}
	return JSON
}

func (e Encoding) String() string {
	if e == CBOR {
		return "CBOR"
	}
	return "JSON"
}

// Limits bound what a message may make its reader do.
type Limits struct {
	// Depth is how deep objects and arrays may be nested, with the message itself.
	Depth int
	// Values is how many values a message may have: each takes up to a hundred times the
	// memory of its encoding.
	Values int
}

// Error says why a message could not be read.
type Error struct {
	// Path names the value, such as messages[2].payload; empty for the message itself.
	Path string
	// Text is for clients.
	Text string
	// Broken: the message is not of its encoding at all, so nothing after this place can be read.
	Broken bool
	// Unknown: the value is of a field that the message should not have.
	Unknown bool
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Text
	}
	return e.Path + ": " + e.Text
}

// within adds the name of the value that the failed one is a part of.
func (e *Error) within(name string) {
	switch {
	case e.Path == "":
		e.Path = name
	case e.Path[0] == '[':
		e.Path = name + e.Path
	default:
		e.Path = name + "." + e.Path
	}
}

// withinNth is within for the nth value of an array.
func (e *Error) withinNth(n int) { e.within(fmt.Sprintf("[%d]", n)) }
