package gateway

import (
	"bytes"
	"context"
)

const (
	// largeText is the size in bytes from which a message's values are counted
	// before it is decoded. The decoded form of a smaller one cannot be large.
	largeText = 16 << 10
	// maxElements is how many values, as tooRich counts them, a large message may
	// have. A thousand messages or events with fifty tags each are within it. An
	// empty object takes three bytes of text and a hundred bytes or more once it is
	// decoded: a message of 1 MiB would take tens of MiB.
	maxElements = 60_000
	// maxDecoding is how many large messages a server decodes at a time: the
	// memory budget does not count their decoded form.
	maxDecoding = 4
)

// tooRich reports whether a JSON text has more than maxElements values. It counts
// commas, braces and brackets outside strings. The text may be invalid JSON.
func tooRich(text []byte) bool {
	n := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i+1)
		case ',', '{', '[':
			if n++; n > maxElements {
				return true
			}
		}
	}
	return false
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

// decoders is a semaphore that bounds how many large messages are decoded at a
// time.
type decoders chan struct{}

func newDecoders() decoders { return make(decoders, maxDecoding) }

// parse is parseRequest, which waits for its turn where the text is large.
func (d decoders) parse(ctx context.Context, text []byte) (*request, *problem) {
	if len(text) >= largeText {
		select {
		case d <- struct{}{}:
			defer func() { <-d }()
		case <-ctx.Done(): // the server gives up, so there will be no answer
		}
	}
	return parseRequest(text)
}
