package wire

import (
	"encoding/base64"
	"slices"

	"github.com/tidewire/tidewire/internal/engine"
)

// readMessageField reads a field of a message to be stored.
func readMessageField(in reader, m *engine.Message, f Field) {
	switch f {
	case FieldKey:
		key, _ := in.text()
		m.Key = textOf(key)
	case FieldHeaders:
		m.Headers = readObject(in)
	case FieldPayload:
		m.Payload, _ = in.data()
		if m.Payload == nil {
			m.Payload = []byte{}
		}
	case FieldPayloadBase64:
		m.Payload = readBase64(in)
	}
}

// readObject reads an object as JSON.
func readObject(in reader) []byte {
	object, ok := in.json()
	if ok && object[0] != '{' {
		in.wants("an object")
	}
	return object
}

// readBase64 reads bytes that are written as base64. CBOR has bytes of its own, but takes them too.
func readBase64(in reader) []byte {
	text, ok := in.text()
	if !ok {
		return nil
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(data, text)
	if err != nil {
		in.wants("base64, with its padding")
	}
	return data[:n]
}

// payloads are the fields of which a message has one.
var payloads = Of(FieldPayload, FieldPayloadBase64)

// CheckPayload returns what is wrong with the payload of a message that has these fields, or nil.
func CheckPayload(given Fields) *Error {
	switch given & payloads {
	case 0:
		return &Error{Path: "payload", Text: "want a string here, or in payload_base64"}
	case payloads:
		return &Error{Path: "payload", Text: "want either payload or payload_base64, not both"}
	}
	return nil
}

// readMessages reads the messages of a list.
func readMessages(in reader) []engine.Message {
	return readList(in, func(m *engine.Message) {
		var given Fields
		clean := in.ignored() == nil
		readObjectFields(in, func(name string) bool {
			f, known := fieldOf[name]
			if !known || !message.Has(f) || f == FieldMessages {
				return false
			}
			given |= 1 << f
			if f == FieldPosition || f == FieldTime {
				in.skip()
			} else {
				readMessageField(in, m, f)
			}
			return true
		})
		if e := CheckPayload(given); e != nil && in.failed() == nil {
			if other := in.ignored(); clean && other != nil { // a misspelled payload is told rather than a missing one
				e = &Error{Path: other.Path, Text: other.Text, Unknown: true}
			}
			in.fail(e)
		}
	})
}

// readObjectFields reads an object. read reads the value of a field, and returns false for a name that it does not know.
func readObjectFields(in reader, read func(name string) bool) {
	if !in.object() {
		return
	}
	var seen [8]string // no object of these has more fields
	n := 0
	for {
		raw, ok := in.name()
		if !ok {
			return
		}
		name := textOf(raw)
		if in.null() {
			continue
		}
		if slices.Contains(seen[:n], name) {
			in.wants("this field once")
		}
		clean := in.ignored() == nil
		if in.failed() == nil && !read(name) {
			in.ignore(raw)
			continue
		}
		nameUnknown(in, clean, name)
		if e := in.failed(); e != nil {
			e.within(name)
			return
		}
		seen[n] = name
		n++
	}
}

// readEvents reads events to be stored.
func readEvents(in reader) []engine.Event {
	return readList(in, func(e *engine.Event) { readEvent(in, e) })
}

// readEvent reads an event. Position and time are those of an event that was read before: they are not used.
func readEvent(in reader, e *engine.Event) {
	var data, base64 bool
	readObjectFields(in, func(name string) bool {
		switch name {
		case "type":
			text, _ := in.text()
			e.Type = textOf(text)
		case "tags":
			e.Tags = readTexts(in)
		case "id":
			text, _ := in.text()
			e.ID = textOf(text)
		case "data":
			data = true
			if e.JSON = !in.bytes(); e.JSON {
				e.Data, _ = in.json()
			} else {
				e.Data, _ = in.data()
			}
		case "data_base64":
			base64 = true
			e.Data = readBase64(in)
		case "position":
			e.Position, _ = in.integer()
		case "time":
			in.skip()
		default:
			return false
		}
		return true
	})
	if base64 && data && in.failed() == nil {
		in.fail(&Error{Path: "data", Text: "want either data or data_base64, not both"})
	}
}

// readQuery reads a query of events.
func readQuery(in reader, q *engine.EventQuery) {
	readObjectFields(in, func(name string) bool {
		if name != "items" {
			return false
		}
		q.Items = readList(in, func(item *engine.EventItem) {
			readObjectFields(in, func(name string) bool {
				switch name {
				case "types":
					item.Types = readTexts(in)
				case "tags":
					item.Tags = readTexts(in)
				default:
					return false
				}
				return true
			})
		})
		return true
	})
}

// readCondition reads the condition of an append.
func (r *Request) readCondition(in reader) {
	readObjectFields(in, func(name string) bool {
		switch name {
		case "query":
			r.Conditional = true
			readQuery(in, &r.Condition.Query)
		case "after":
			r.Condition.After, _ = in.integer()
		default:
			return false
		}
		return true
	})
}
