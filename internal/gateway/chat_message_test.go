package gateway

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// FuzzParseChat compares the parser with a slow one, which uses encoding/json for each field.
func FuzzParseChat(f *testing.F) {
	for _, seed := range []string{
		`{"type":"join","room":"r","user":"u"}`, `{"type":"chat","text":"x","ts":1.5,"id":"a"}`, `{"type":"ping","ts":null}`,
		`{"type":"join","presence":true,"on_lag":"disconnect"}`, `{"type":"join","presence":null}`, `{"type":"join","presence":"yes","id":1}`,
		`{"id":7}`, `[]`, `{`, `{"TYPE":"chat","type":7}`, `{"id":{}}`, ` {"type":"leave","room":null}`, "\xff", `{}`, ` { } `,
		`{"type":"chat","text":"","room":"a","Room":"b"}`, `{"type":"chat","text":"","ro\u006fm":"b"}`, `{"id":1,"id":2}`,
		`{"type":"chat","text":"","u\u017fer":"b"}`, "{\"type\":\"chat\",\"text\":\"\",\"po\u017fition\":1}", `{"position":1,"text":"\\"}`,
		`{"a":[{"type":"x"},"]"],"b":{"type":{"}":"{"}},"type":"chat","text":"\"","te\u0078t":7}`, `{"type":"chat","text":"x","after":-1}`,
		`{"type":"chat","text":"x","history":1e3}`, "{\"text\":\"\xff\",\"type\":\"chat\",\"user\":\"\xff\"}", `{"":0,"\"":"\\\"","type":"pong"} `,
		`{"type":"chat","text":"x","client":"c","sequence":1}`, `{"client":null,"client":2,"type":"join"}`, `{"s\u0065quence":1,"time":null,"Time":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, why := parseChat(payload)
		want, ok := parseSlowly(payload)
		if (why == nil) != ok || why != nil && why.message() == "" {
			t.Fatalf("parsed %q with %v, want it accepted: %v", payload, why, ok)
		}
		if !json.Valid(payload) && json.Valid(got.ID) {
			got.ID = nil // as far as it could be read
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("parsed %q as %+v, want %+v", payload, got, want)
		}
	})
}

// parseSlowly is a simple and slow parseChat.
func parseSlowly(payload []byte) (m chatMessage, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(payload))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') || !json.Valid(payload) {
		return m, false
	}
	ok = true
	ambiguous := false
	values, forged := make(map[string]json.RawMessage), make(map[string]bool)
	for dec.More() {
		before := dec.InputOffset()
		key, _ := dec.Token()
		spelled := strings.Trim(string(payload[before:dec.InputOffset()]), ", \t\r\n")
		var value json.RawMessage
		dec.Decode(&value)
		for _, name := range []string{"type", "id", "room", "user", "position", "time"} {
			upToNUL, _, _ := strings.Cut(key.(string), "\x00")
			if strings.EqualFold(upToNUL, name) && (spelled != `"`+name+`"` || values[name] != nil) {
				forged[name], ok = true, false
			}
		}
		if name := key.(string); name == "client" || name == "sequence" {
			ambiguous = ambiguous || values[name] != nil || spelled != `"`+name+`"`
		}
		values[key.(string)] = value
	}
	var id any
	json.Unmarshal(values["id"], &id)
	switch id.(type) {
	case string, float64:
		if !forged["id"] && len(values["id"]) <= maxIDBytes {
			m.ID = values["id"]
		}
	}
	if !forged["id"] && values["id"] != nil && m.ID == nil {
		ok = false
	}
	read := m
	var hasText *string
	for name, to := range map[string]any{
		"type": &read.Type, "room": &read.Room, "user": &read.User, "text": &hasText, "ts": &read.TS, "on_lag": &read.OnLag,
		"presence": &read.Presence, "after": &read.After, "history": &read.History,
	} {
		if values[name] != nil && json.Unmarshal(values[name], to) != nil {
			ok = false
		}
	}
	read.Placed, read.Timed = values["position"] != nil, values["time"] != nil
	read.Client, read.Sequence, read.Ambiguous = values["client"], values["sequence"], ambiguous
	ok = ok && (read.OnLag == "" || read.OnLag == "gap" || read.OnLag == "disconnect")
	ok = ok && (read.Type != "chat" || hasText != nil) && read.History >= 0 && (read.After == nil || *read.After >= 0)
	if !ok {
		return m, false
	}
	return read, true
}
