package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/wire"
)

// TestParseRequest_TooManyElements: a large message that would take a hundred times its size once decoded is refused before it is decoded, and its
// sender gets an error.
func TestParseRequest_TooManyElements(t *testing.T) {
	t.Parallel()
	d := wire.Decoder{Limits: newDecoders(64).limits()}
	parse := func(text []byte) (*request, *problem) { return parseRequest(&d, text, wire.JSON) }
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	for name, rich := range map[string]string{
		"objects": list("{}", maxElements), "lists": list("[]", maxElements), "numbers": list("1", 2*maxElements),
		"strings": list(`"\\\""`, 2*maxElements),
	} {
		r, err := parse(fmt.Appendf(nil, `{"type":"append","events":%s,"id":7}`, rich))
		if err == nil || r.Events != nil || r.Type != "append" || string(r.ID) != "7" {
			t.Errorf("%s: %v, type %q, id %s, %d events", name, err, r.Type, r.ID, len(r.Events))
		}
	}
	text := strings.Repeat(`{[,`, 300_000)
	if r, err := parse(fmt.Appendf(nil, `{"type":"publish","stream":"s","payload":%q}`, text)); err != nil || string(r.One.Payload) != text {
		t.Errorf("brackets in a string: %v", err)
	}
	tags := list(`"t"`, 50)
	if r, err := parse(fmt.Appendf(nil, `{"type":"append","events":%s}`, list(`{"type":"e","tags":`+tags+`}`, 1000))); err != nil || len(r.Events) != 1000 {
		t.Errorf("a thousand events with fifty tags: %v", err)
	}
}
