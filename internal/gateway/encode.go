package gateway

import (
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// writeBody writes the fields of a stored message.
func writeBody(w *wire.Writer, m *engine.Message) {
	w.Name("position")
	w.Int(m.Position)
	if m.Key != "" {
		w.Name("key")
		w.Text(m.Key)
	}
	if len(m.Headers) > 0 {
		w.Name("headers")
		w.JSON(m.Headers)
	}
	w.Name("time")
	w.Time(m.Time)
	w.Data("payload", "payload_base64", m.Payload)
}

// writeMessage writes a message for a subscriber.
func writeMessage(w *wire.Writer, stream, subscription string, m *engine.Message) {
	writeOf(w, stream, subscription, unparted, m)
}

// writeDelivery writes a delivery for a consumer, on /ws and, without a type,
// in the answer to an HTTP receive.
func writeDelivery(w *wire.Writer, typed bool, queue, token string, d *engine.Delivery) {
	w.Open()
	if typed {
		w.Name("type")
		w.Text("delivery")
	}
	w.Name("queue")
	w.Text(queue)
	w.Name("delivery")
	w.Text(token)
	w.Name("attempt")
	w.Int(int64(d.Attempt))
	writeBody(w, &d.Message)
	w.Close()
}

// reply is an answer to one client, or the message that ends a subscription or
// consumption.
type reply struct {
	Type         string   `json:"type,omitempty"`
	ID           []byte   `json:"-"` // as the client has encoded it
	Subscription string   `json:"subscription,omitempty"`
	Queue        string   `json:"queue,omitempty"`
	Code         code     `json:"code,omitempty"`
	Message      string   `json:"message,omitempty"`
	Retryable    *bool    `json:"retryable,omitempty"` // of every error; see complete
	RetryAfterMS int64    `json:"retry_after_ms,omitempty"`
	Partition    *int     `json:"partition,omitempty"`
	Position     *int64   `json:"position,omitempty"`
	Size         *int64   `json:"size,omitempty"`
	Count        int      `json:"count,omitempty"`
	Credits      *int64   `json:"credits,omitempty"`
	Duplicate    bool     `json:"duplicate,omitempty"`
	Positions    []int64  `json:"positions,omitempty"`
	Oldest       *int64   `json:"oldest,omitempty"`
	Last         *int64   `json:"last,omitempty"`
	EventType    string   `json:"event_type,omitempty"`
	Field        string   `json:"field,omitempty"`
	Lost         []string `json:"lost,omitempty"`
	Failed       []string `json:"failed,omitempty"`

	// Of authentication.
	User    string `json:"user,omitempty"`
	Role    string `json:"role,omitempty"`
	Expires *int64 `json:"expires,omitempty"`
	Now     *int64 `json:"now,omitempty"`
	Verb    string `json:"verb,omitempty"`
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	Room    string `json:"room,omitempty"`

	// hello writes the fields of a hello, if the answer has one.
	hello func(w *wire.Writer)
}

// stored is the answer to a request that stored messages, with their number unless
// count is 0. A repeated request gets the number that the first one stored. The reply
// refers to first.
func stored(first *engine.Place, count int) reply {
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

// write writes an answer to a request on /ws.
func (r *reply) write(w *wire.Writer) {
	w.Open()
	w.Name("type")
	w.Text(r.Type)
	if r.ID != nil {
		w.Name("id")
		w.Encoded(r.ID)
	}
	optionalText(w, "subscription", r.Subscription)
	optionalText(w, "queue", r.Queue)
	if r.Code != "" {
		r.writeError(w)
	}
	if r.Partition != nil {
		w.Name("partition")
		w.Int(int64(*r.Partition))
	}
	optionalInt(w, "position", r.Position)
	if r.Count != 0 {
		w.Name("count")
		w.Int(int64(r.Count))
	}
	optionalInt(w, "credits", r.Credits)
	if r.Duplicate {
		w.Name("duplicate")
		w.Bool(true)
	}
	if len(r.Positions) > 0 {
		w.Name("positions")
		w.OpenList()
		for _, p := range r.Positions {
			w.Next()
			w.Int(p)
		}
		w.CloseList()
	}
	if r.Code != "" {
		r.writeDetails(w)
	}
	optionalText(w, "user", r.User)
	optionalText(w, "role", r.Role)
	optionalInt(w, "expires", r.Expires)
	optionalInt(w, "now", r.Now)
	if r.hello != nil {
		w.Name("hello")
		w.Open()
		r.hello(w)
		w.Close()
	}
	w.Close()
}

// writeError writes what all errors have.
func (r *reply) writeError(w *wire.Writer) {
	w.Name("code")
	w.Text(string(r.Code))
	w.Name("message")
	w.Text(r.Message)
	w.Name("retryable")
	w.Bool(retryable[r.Code])
	if r.RetryAfterMS > 0 {
		w.Name("retry_after_ms")
		w.Int(r.RetryAfterMS)
	}
}

// writeDetails writes what some errors have.
func (r *reply) writeDetails(w *wire.Writer) {
	optionalInt(w, "size", r.Size)
	optionalInt(w, "oldest", r.Oldest)
	optionalInt(w, "last", r.Last)
	optionalText(w, "event_type", r.EventType)
	optionalText(w, "field", r.Field)
	optionalTexts(w, "lost", r.Lost)
	optionalTexts(w, "failed", r.Failed)
	optionalText(w, "verb", r.Verb)
	optionalText(w, "kind", r.Kind)
	optionalText(w, "name", r.Name)
	optionalText(w, "room", r.Room)
}

func optionalText(w *wire.Writer, name, value string) {
	if value != "" {
		w.Name(name)
		w.Text(value)
	}
}

func optionalInt(w *wire.Writer, name string, value *int64) {
	if value != nil {
		w.Name(name)
		w.Int(*value)
	}
}

func optionalTexts(w *wire.Writer, name string, values []string) {
	if len(values) == 0 {
		return
	}
	w.Name(name)
	w.OpenList()
	for _, v := range values {
		w.Next()
		w.Text(v)
	}
	w.CloseList()
}
