package gateway

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/internal/engine"
)

// appendBody appends the fields of a stored message, without braces.
func appendBody(dst []byte, m engine.Message) []byte {
	dst = append(dst, `"position":`...)
	dst = strconv.AppendInt(dst, m.Position, 10)
	if m.Key != "" {
		dst = appendText(append(dst, `,"key":`...), m.Key)
	}
	if len(m.Headers) > 0 {
		dst = append(append(dst, `,"headers":`...), m.Headers...)
	}
	dst = append(dst, `,"time":"`...)
	dst = m.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	if utf8.Valid(m.Payload) {
		return appendText(append(dst, `","payload":`...), m.Payload)
	}
	dst = append(dst, `","payload_base64":"`...)
	return append(base64.StdEncoding.AppendEncode(dst, m.Payload), '"')
}

// appendMessage appends a message for a subscriber.
func appendMessage(dst []byte, stream, subscription string, m engine.Message) []byte {
	dst = appendText(append(dst, `{"type":"message","stream":`...), stream)
	dst = appendText(append(dst, `,"subscription":`...), subscription)
	return append(appendBody(append(dst, ','), m), '}')
}

// appendDelivery appends a delivery for a consumer, on /ws and, without a type,
// in the answer to an HTTP receive.
func appendDelivery(dst []byte, typed bool, queue, token string, d engine.Delivery) []byte {
	dst = append(dst, '{')
	if typed {
		dst = append(dst, `"type":"delivery",`...)
	}
	dst = appendText(append(dst, `"queue":`...), queue)
	dst = appendText(append(dst, `,"delivery":`...), token)
	dst = append(dst, `,"attempt":`...)
	dst = append(strconv.AppendInt(dst, int64(d.Attempt), 10), ',')
	return append(appendBody(dst, d.Message), '}')
}

const hexDigits = "0123456789abcdef"

// appendText appends valid UTF-8 as a JSON string.
func appendText[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(dst, text[from:]...), '"')
}

// reply is an answer to one client, or the message that ends a subscription or
// consumption.
type reply struct {
	Type         string          `json:"type,omitempty"`
	ID           json.RawMessage `json:"id,omitempty"`
	Subscription string          `json:"subscription,omitempty"`
	Queue        string          `json:"queue,omitempty"`
	Code         code            `json:"code,omitempty"`
	Message      string          `json:"message,omitempty"`
	Retryable    *bool           `json:"retryable,omitempty"` // of every error; see complete
	RetryAfterMS int64           `json:"retry_after_ms,omitempty"`
	Partition    *int            `json:"partition,omitempty"`
	Position     *int64          `json:"position,omitempty"`
	Count        int             `json:"count,omitempty"`
	Credits      *int64          `json:"credits,omitempty"`
	Duplicate    bool            `json:"duplicate,omitempty"`
	Positions    []int64         `json:"positions,omitempty"`
	Oldest       *int64          `json:"oldest,omitempty"`
	Last         *int64          `json:"last,omitempty"`
	EventType    string          `json:"event_type,omitempty"`
	Field        string          `json:"field,omitempty"`
	Lost         []string        `json:"lost,omitempty"`
	Failed       []string        `json:"failed,omitempty"`

	// Of authentication.
	User    string `json:"user,omitempty"`
	Role    string `json:"role,omitempty"`
	Expires *int64 `json:"expires,omitempty"`
	Now     *int64 `json:"now,omitempty"`
	Verb    string `json:"verb,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	Room    string `json:"room,omitempty"`
}

// stored is the answer to a request that stored messages, with their number unless
// count is 0. A repeated request gets the number that the first one stored.
func stored(first engine.Place, count int) reply {
	if first.Duplicate && (count > 0 || first.Count > 1) {
		count = first.Count
	}
	with := reply{Position: &first.Position, Count: count, Duplicate: first.Duplicate}
	if first.Partition >= 0 {
		with.Partition = &first.Partition
	}
	return with
}

// refusal is an error as a client reads it.
func refusal(why code) reply { return reply{Type: "error", Code: why, Message: publicErrors[why]} }

// complete adds to an error whether the same request may be sent again.
func (r reply) complete() reply {
	if r.Code != "" {
		again := retryable[r.Code]
		r.Retryable = &again
	}
	return r
}

func (r reply) text() []byte {
	text, _ := json.Marshal(r.complete()) // no value of ours fails
	return text
}

// appendNext ends an object with the position at which the next page begins.
func appendNext(dst []byte, position int64) []byte {
	return append(strconv.AppendInt(append(dst, `,"next":`...), position, 10), '}')
}
