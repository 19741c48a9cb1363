package gateway

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// Limits of a filter.
const (
	maxFilterKeys    = 100
	maxFilterHeaders = 10
	maxKeyBytes      = 1024
)

// filter says which messages a subscription gets. It does not change.
type filter struct {
	keys    map[string]bool   // nil: a message may have any key, or none
	headers map[string]string // that a message has, with these texts as values
	sum     filterSum
}

// filterSum is the same for filters that take the same messages, and zero without a filter.
type filterSum [sha256.Size]byte

// filter returns the filter of a subscribe, nil if it has none.
func (r *request) filter() (*filter, *problem) {
	keys, why := r.filterKeys()
	if why != nil {
		return nil, why
	}
	headers, why := r.filterHeaders()
	if why != nil || len(keys)+len(headers) == 0 {
		return nil, why
	}
	slices.Sort(keys)
	text, _ := json.Marshal([]any{slices.Compact(keys), headers}) // no value of ours fails; maps are sorted
	f := &filter{headers: headers, sum: sha256.Sum256(text)}
	if len(keys) > 0 {
		f.keys = make(map[string]bool, len(keys))
	}
	for _, k := range keys {
		f.keys[k] = true
	}
	return f, nil
}

func (r *request) filterKeys() ([]string, *problem) {
	switch {
	case !r.Has(wire.FieldKeys):
		return nil, nil
	case len(r.Keys) == 0:
		return nil, malformed("keys", fmt.Sprintf("1 to %d keys", maxFilterKeys))
	case len(r.Keys) > maxFilterKeys:
		return nil, wrong(engine.CodeInvalid, "keys", fmt.Sprintf("at most %d keys", maxFilterKeys))
	}
	for i, k := range r.Keys {
		if k == "" || len(k) > maxKeyBytes {
			return nil, wrong(engine.CodeInvalid, fmt.Sprintf("keys[%d]", i), fmt.Sprintf("a key of 1 to %d bytes", maxKeyBytes))
		}
	}
	return r.Keys, nil
}

func (r *request) filterHeaders() (headers map[string]string, why *problem) {
	if !r.Has(wire.FieldHeaders) {
		return nil, nil
	}
	var given map[string]any
	json.Unmarshal(r.One.Headers, &given) // the decoder has checked it
	switch {
	case len(given) == 0:
		return nil, malformed("headers", fmt.Sprintf("1 to %d headers", maxFilterHeaders))
	case len(given) > maxFilterHeaders:
		return nil, wrong(engine.CodeInvalid, "headers", fmt.Sprintf("at most %d headers", maxFilterHeaders))
	}
	headers = make(map[string]string, len(given))
	for name, value := range given {
		text, ok := value.(string)
		if !ok {
			return nil, malformed("headers."+name, "a string")
		}
		headers[name] = text
	}
	return headers, nil
}

// sumOf is the sum of a filter, which may be nil.
func (f *filter) sumOf() filterSum {
	if f == nil {
		return filterSum{}
	}
	return f.sum
}

// takes reports whether the subscription gets a message. A nil filter takes all.
func (f *filter) takes(m *engine.Message) bool {
	switch {
	case f == nil:
		return true
	case f.keys != nil && !f.keys[m.Key]:
		return false
	case len(f.headers) == 0:
		return true
	case len(m.Headers) == 0:
		return false
	}
	var has map[string]any
	if json.Unmarshal(m.Headers, &has) != nil {
		return false
	}
	for name, want := range f.headers {
		if has[name] != any(want) {
			return false
		}
	}
	return true
}

// of returns those of the messages that the subscription gets, in memory of its own.
func (f *filter) of(messages []engine.Message) []engine.Message {
	if f == nil {
		return messages
	}
	var taken []engine.Message
	for i := range messages {
		if f.takes(&messages[i]) {
			taken = append(taken, messages[i])
		}
	}
	return taken
}
