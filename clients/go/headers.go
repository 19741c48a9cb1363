package tidewire

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf8"
)

// What shares a request must not be refused because of one message, or the order of the calls is lost. So only those share that the server
// takes for certain: with a key and headers that PostgreSQL can hold.
const (
	longestKey      = 1024 // bytes that the server takes
	mostGoodHeaders = 16   // a server also bounds how many values a request has
	mostGoodBytes   = 4096 // of headers; a server takes 64 KiB
)

// goodKey reports whether the server takes a key.
func goodKey(key string) bool { return len(key) <= longestKey && goodText(key) }

// goodText reports whether PostgreSQL can hold a text.
func goodText(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// goodHeaders reports whether the server takes headers for certain: few texts.
func goodHeaders(headers map[string]any, encoded json.RawMessage) bool {
	if len(headers) > mostGoodHeaders || len(encoded) > mostGoodBytes {
		return false
	}
	for name, value := range headers {
		text, ok := value.(string)
		if !ok || !goodText(name) || !goodText(text) {
			return false
		}
	}
	return true
}

// headersOf encodes headers, with the trace of ctx. good says that the server takes them for certain.
func headersOf(c *Client, ctx context.Context, headers map[string]any) (encoded json.RawMessage, good bool, err error) {
	if c.opts.Propagator != nil {
		trace := map[string]string{}
		c.opts.Propagator.Inject(ctx, trace)
		if len(trace) > 0 {
			all := make(map[string]any, len(headers)+len(trace))
			maps.Copy(all, headers)
			for name, value := range trace {
				all[name] = value
			}
			headers = all
		}
	}
	if len(headers) == 0 {
		return nil, true, nil
	}
	encoded, err = json.Marshal(headers)
	if err != nil {
		return nil, false, &Error{Code: "invalid", Message: "the headers cannot be encoded: " + err.Error(), cause: err}
	}
	return encoded, goodHeaders(headers, encoded), nil
}
