package presence

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tidewire/tidewire/stream"
)

// The types of events.
const (
	connected    = "connected"
	disconnected = "disconnected"
	joined       = "joined"
	left         = "left"
	nodeStarted  = "node_started"
	nodeStopped  = "node_stopped"
	nodeLeft     = "node_left"
	eventsLost   = "events_lost"
)

// event is an event that is not encoded yet.
type event struct {
	kind       string // one of the types
	at         int64  // microseconds since 1970
	connection uint64 // 0 if it is about the node
	user, room string
	lost       uint64
}

// message is the payload of an event.
type message struct {
	Type       string `json:"type"`
	Node       string `json:"node"`
	Connection string `json:"connection,omitempty"`
	User       string `json:"user,omitempty"`
	Room       string `json:"room,omitempty"`
	Count      uint64 `json:"count,omitempty"`
	Time       string `json:"time"`
}

// encoded is an event as the stream gets it.
type encoded struct {
	key     string
	payload []byte
}

// encode encodes an event of a node.
func (e *event) encode(node string) encoded {
	m := message{Type: e.kind, Node: node, User: text(e.user), Room: text(e.room), Count: e.lost, Time: time.UnixMicro(e.at).UTC().Format("2006-01-02T15:04:05.000000Z")}
	if e.connection != 0 {
		m.Connection = node + "-" + strconv.FormatUint(e.connection, 10)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.Encode(m) // strings and numbers cannot fail
	key := m.User
	switch {
	case key == "":
		key = m.Connection
	case len(key) > stream.MaxKey:
		sum := sha256.Sum256([]byte(key))
		key = "sha256:" + hex.EncodeToString(sum[:])
	}
	return encoded{key, bytes.TrimSuffix(out.Bytes(), []byte("\n"))}
}

// text returns a name that PostgreSQL's text and jsonb can hold: clients of an open server choose names as they like, and may not break its readers.
func text(name string) string {
	if strings.IndexByte(name, 0) >= 0 {
		name = strings.ReplaceAll(name, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
