package gateway

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tidewire/tidewire/internal/wire"
)

const (
	// largeText is the size in bytes from which few messages are decoded at a time.
	// The decoded form of a smaller one cannot be large.
	largeText = 16 << 10
	// maxElements is how many values a message may have. A thousand messages or events with fifty tags each are within it. An
	// empty object takes three bytes of text and a hundred bytes or more once it is
	// decoded: a message of 1 MiB would take tens of MiB.
	maxElements = 60_000
	// maxDecoding is how many large messages a server decodes at a time: the
	// memory budget does not count their decoded form.
	maxDecoding = 4
)

// tooDeep returns the problem of a JSON text that is nested more than most deep. The text may be invalid JSON. Most texts have fewer braces
// and brackets than that, which is quick to see.
func tooDeep(text []byte, most int) *problem {
	if bytes.Count(text, []byte{'{'})+bytes.Count(text, []byte{'['}) <= most {
		return nil
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i+1)
		case '{', '[':
			if depth++; depth > most {
				return &problem{code: codeMalformed, text: fmt.Sprintf("nested too deeply: want at most %d objects and arrays within each other", most)}
			}
		case '}', ']':
			depth--
		}
	}
	return nil
}

// skipString returns the end of the string that begins before i: the index of its
// closing quotation mark, or len(text) if there is none.
func skipString(text []byte, i int) int {
	for {
		n := bytes.IndexAny(text[i:], `"\`)
		if n < 0 {
			return len(text)
		}
		if i += n; text[i] == '"' {
			return i
		}
		if i += 2; i >= len(text) { // an escape has at least two bytes
			return len(text)
		}
	}
}

// decoders decodes messages. large is a semaphore that bounds how many large ones are decoded at a time.
type decoders struct {
	large    chan struct{}
	maxDepth int
}

func newDecoders(maxDepth int) decoders {
	return decoders{make(chan struct{}, maxDecoding), maxDepth}
}

// limits are those of one message.
func (d decoders) limits() wire.Limits { return wire.Limits{Depth: d.maxDepth, Values: maxElements} }

// parse is parseRequest with a decoder that has these limits. It waits for its turn where the message is large.
func (d decoders) parse(ctx context.Context, with *wire.Decoder, message []byte, e wire.Encoding) (*request, *problem) {
	if len(message) >= largeText {
		select {
		case d.large <- struct{}{}:
			defer func() { <-d.large }()
		case <-ctx.Done(): // the server gives up, so there will be no answer
		}
	}
	return parseRequest(with, message, e)
}
