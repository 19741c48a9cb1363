package tidewire

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// sending is a publish or an enqueue.
type sending struct {
	kind     string // publish or enqueue
	name     string // of the stream or queue
	key      string // of all its messages, if these share a request
	several  bool   // messages in place of one payload
	messages []outgoing
	delay    time.Duration
	priority int
	unique   string
	period   time.Duration
}

// outgoing is a message to be stored.
type outgoing struct {
	key     string
	headers json.RawMessage
	payload []byte
}

func (m *outgoing) size() int { return len(m.payload) + len(m.key) + len(m.headers) }

// appendJSON appends a request as JSON.
func appendJSON(dst []byte, client string, r *request) []byte {
	if r.encode != nil {
		return r.encode(dst, r)
	}
	s := r.send
	dst = appendStart(dst, s.kind, r.id)
	dst = appendText(dst, nameField(s.kind), s.name)
	dst = appendRequest(dst, client, r)
	if s.delay > 0 {
		dst = appendNumber(dst, "delay_ms", s.delay.Milliseconds())
	}
	if s.priority > 0 {
		dst = appendNumber(dst, "priority", int64(s.priority))
	}
	if s.unique != "" {
		dst = appendText(dst, "unique_key", s.unique)
		dst = appendNumber(dst, "unique_ms", s.period.Milliseconds())
	}
	if !s.several {
		dst = appendMessage(dst, &s.messages[0])
		return append(dst, '}')
	}
	dst = append(dst, `,"messages":[`...)
	for i := range s.messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		at := len(dst)
		dst = appendMessage(dst, &s.messages[i])
		dst[at] = '{' // in place of the comma before the first field
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

func nameField(kind string) string {
	if kind == "enqueue" {
		return "queue"
	}
	return "stream"
}

// appendRequest appends what makes a request repeatable.
func appendRequest(dst []byte, client string, r *request) []byte {
	if r.sequence < 0 {
		return dst
	}
	dst = appendText(dst, "client", client)
	return appendNumber(dst, "sequence", r.sequence)
}

// appendStart appends the beginning of a message of the client; the id is left out if it is 0.
func appendStart(dst []byte, kind string, id uint64) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(append(dst, kind...), '"')
	if id != 0 {
		dst = append(dst, `,"id":`...)
		dst = strconv.AppendUint(dst, id, 10)
	}
	return dst
}

func appendText(dst []byte, name, value string) []byte {
	return appendString(appendName(dst, name), value)
}

func appendNumber(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(appendName(dst, name), n, 10)
}

// appendName appends a comma and the name of a field.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// appendAny appends a field of any value. The caller has made sure that it is one.
func appendAny(dst []byte, name string, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		text = []byte("null")
	}
	return append(appendName(dst, name), text...)
}

func appendMessage(dst []byte, m *outgoing) []byte {
	if m.key != "" {
		dst = appendText(dst, "key", m.key)
	}
	if len(m.headers) > 0 {
		dst = append(appendName(dst, "headers"), m.headers...)
	}
	if utf8.Valid(m.payload) {
		return appendString(appendName(dst, "payload"), m.payload)
	}
	dst = append(appendName(dst, "payload_base64"), '"')
	dst = base64.StdEncoding.AppendEncode(dst, m.payload)
	return append(dst, '"')
}

const digits = "0123456789abcdef"

// appendString appends a text as a JSON string. What is not UTF-8 becomes U+FFFD.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if b >= ' ' && b != '"' && b != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
