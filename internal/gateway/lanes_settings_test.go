package gateway

import (
	"encoding/json"
	"testing"

	"github.com/tidewire/tidewire/websocket"
)

// FuzzLaneSettings: only an object with a settings type is a setting; everything
// else is echoed.
func FuzzLaneSettings(f *testing.F) {
	for _, seed := range []string{`{"type":"hello","chunks":true}`, `{"type":"credit","bytes":5}`, `{"type":"chunk"}`,
		`{`, `{}`, " \n{\"type\":\"hello\"}", `{"type":"hello","credit":1}`, `{"type":"credit","bytes":-1e400}`, `{"type":{}}`, `{"TYPE":"hello"}`, "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		_, ours, why := parseSettings(websocket.Message{Op: websocket.OpText, Payload: payload})
		var plain map[string]json.RawMessage
		var kind string
		valid := json.Unmarshal(payload, &plain) == nil
		_ = json.Unmarshal(plain["type"], &kind) // "" if it is no text
		if ours && !valid || why != nil && !ours {
			t.Fatalf("%q: ours %v, %+v", payload, ours, why)
		}
		if valid && len(payload) <= maxSettings && kind == "hello" && !ours {
			t.Fatalf("%q is to be echoed", payload)
		}
	})
}
