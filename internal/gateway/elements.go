package gateway

import (
	"bytes"
	"context"
)

const (
	// largeText is from how many bytes on a message is looked at before it is
	// decoded. A smaller one cannot become much.
	largeText = 16 << 10
	// maxElements is how many values, without those of objects' fields, a large
	// message may have. A thousand messages or events with fifty tags each are
	// within it. An empty object takes three bytes of text and a hundred or more once
	// it is decoded: a message of 1 MiB would take a hundred.
	maxElements = 60_000
	// maxDecoding is how many large messages a server decodes at a time: what the
	// decoder makes of them is not counted by the memory budget.
	maxDecoding = 4
)

// tooRich reports whether a JSON text has more than maxElements values. It counts
// commas and opening brackets outside strings, and reads a text that is no JSON to
// its end as well.
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

// skipString returns where the string ends that begins before i: at its quotation
// mark, or after the text if there is none.
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

// decoders bounds how many large messages are decoded at a time (a semaphore).
type decoders chan struct{}

func newDecoders() decoders { return make(decoders, maxDecoding) }

// parse is parseRequest, which waits for its turn where the text is large.
func (d decoders) parse(ctx context.Context, text []byte) (*request, *problem) {
	if len(text) >= largeText {
		select {
		case d <- struct{}{}:
			defer func() { <-d }()
		case <-ctx.Done(): // the server gives up: what is decoded is answered nowhere
		}
	}
	return parseRequest(text)
}
