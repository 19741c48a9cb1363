package gateway

import (
	"fmt"
	"strings"
	"testing"
)

// TestParseRequest_TooManyElements: a large message that would take a hundred times
// its size once decoded is refused before it is decoded, and its sender gets an
// error.
func TestParseRequest_TooManyElements(t *testing.T) {
	t.Parallel()
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	for name, rich := range map[string]string{
		"objects": list("{}", maxElements), "lists": list("[]", maxElements), "numbers": list("1", 2*maxElements),
		"strings": list(`"\\\""`, 2*maxElements),
	} {
		r, err := parseRequest(fmt.Appendf(nil, `{"type":"append","events":%s,"id":7}`, rich))
		if err == nil || r.Events != nil || r.Type != "append" || string(r.ID) != "7" {
			t.Errorf("%s: %v, type %q, id %s, %d events", name, err, r.Type, r.ID, len(r.Events))
		}
	}
	text := strings.Repeat(`{[,`, 300_000)
	if r, err := parseRequest(fmt.Appendf(nil, `{"type":"publish","stream":"s","payload":%q}`, text)); err != nil || *r.Payload != text {
		t.Errorf("brackets in a string: %v", err)
	}
	tags := list(`"t"`, 50)
	if r, err := parseRequest(fmt.Appendf(nil, `{"type":"append","events":%s}`, list(`{"type":"e","tags":`+tags+`}`, 1000))); err != nil || len(r.Events) != 1000 {
		t.Errorf("a thousand events with fifty tags: %v", err)
	}
	for _, broken := range []string{`"`, `"\`, `"\"`, `{"a":"`, strings.Repeat(`"\`, largeText)} {
		tooRich([]byte(broken)) // must not read past its end
	}
}
