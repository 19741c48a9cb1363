package tidewire

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Encoding is how messages are written on the wire.
type Encoding int

const (
	CBOR Encoding = iota // payloads are bytes: smaller, and cheaper for both sides
	JSON                 // everything is text, which people can read
)

// Options are the options of a client. The zero value is good for a server without keys.
type Options struct {
	// Token returns a token, or an API key. It is called before each attempt to connect, and when the token of the connection ends
	// soon. refused says that the server has refused the token before. After an error of it, or an empty token, the next attempt follows
	// after a pause; after an error of Final the client is closed.
	Token func(ctx context.Context, refused bool) (string, error)
	// APIKey is a key, or a token that does not end, in place of Token.
	APIKey string

	Timeout         time.Duration // of a request, with all its attempts; 30 s by default
	MaxPending      int           // requests that wait for an answer; 1,000 by default. Further calls wait
	MaxPendingBytes int           // bytes of these; 4 MiB by default
	NoBatch         bool          // send each publish as a request of its own
	Encoding        Encoding
	// MaxFrame is how many bytes a message of the server may have on the wire. A larger one ends the connection, with an error in its state.
	// By default 32 MiB and 8 times the size of a message that the server takes, so 40 MiB. A stream may have larger messages if programs
	// write to it without the server's limit.
	MaxFrame int

	// OnState is called with each change of the state, one after the other, on a goroutine of its own.
	OnState func(State)
	// Logger gets what nobody else is told: an error of a handler of Work without OnOutcome. slog.Default() by default.
	Logger *slog.Logger
	// Propagator carries a trace in the headers of messages.
	Propagator Propagator

	Header http.Header // further headers of the handshake
	TLS    *tls.Config
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxPending = cmp.Or(o.MaxPending, 1000)
	o.MaxPendingBytes = cmp.Or(o.MaxPendingBytes, 4<<20)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return o
}

// Propagator carries the context of a trace in headers. Package documentation has the lines that connect OpenTelemetry.
type Propagator interface {
	// Inject writes the trace of ctx into headers.
	Inject(ctx context.Context, headers map[string]string)
	// Extract returns ctx with the trace of headers.
	Extract(ctx context.Context, headers map[string]string) context.Context
}

// Phase is what a client does.
type Phase int

const (
	Idle       Phase = iota // nothing has been asked of it yet
	Connecting              // an attempt is under way
	Connected
	Waiting // for the time of the next attempt
	Closed
)

func (p Phase) String() string {
	return [...]string{"idle", "connecting", "connected", "waiting", "closed"}[p]
}

// State is the state of a client.
type State struct {
	Phase   Phase
	RetryAt time.Time // of Waiting: when the next attempt begins
	Err     error     // of Waiting and Closed: why; nil after Close
}

// A PublishOption is an option of Publish: those that a MessageOption is, too.
type PublishOption interface{ publish(*PublishOptions) }

// An EnqueueOption is an option of Enqueue.
type EnqueueOption interface{ enqueue(*EnqueueOptions) }

// A MessageOption is an option of Publish and of Enqueue.
type MessageOption func(*PublishOptions)

func (o MessageOption) publish(p *PublishOptions) { o(p) }
func (o MessageOption) enqueue(e *EnqueueOptions) { o(&e.PublishOptions) }

type enqueueOption func(*EnqueueOptions)

func (o enqueueOption) enqueue(e *EnqueueOptions) { o(e) }

// PublishOptions are what PublishOptions set, for other implementations of Log.
type PublishOptions struct {
	Key     string
	Headers map[string]any
	Timeout time.Duration
}

// EnqueueOptions are what EnqueueOptions set, for other implementations of Jobs.
type EnqueueOptions struct {
	PublishOptions
	Delay     time.Duration
	Priority  int
	UniqueKey string
	UniqueFor time.Duration
}

// NewPublishOptions applies options.
func NewPublishOptions(options ...PublishOption) (o PublishOptions) {
	for _, option := range options {
		option.publish(&o)
	}
	return o
}

// NewEnqueueOptions applies options.
func NewEnqueueOptions(options ...EnqueueOption) (o EnqueueOptions) {
	for _, option := range options {
		option.enqueue(&o)
	}
	return o
}

// Key gives the message a key, which decides its partition.
func Key(key string) MessageOption { return func(o *PublishOptions) { o.Key = key } }

// Headers gives the message headers.
func Headers(headers map[string]any) MessageOption {
	return func(o *PublishOptions) { o.Headers = headers }
}

// Timeout is the time of the request with all its attempts, in place of Options.Timeout.
func Timeout(d time.Duration) MessageOption { return func(o *PublishOptions) { o.Timeout = d } }

// Delay delivers the message so much later.
func Delay(d time.Duration) EnqueueOption {
	return enqueueOption(func(o *EnqueueOptions) { o.Delay = d })
}

// Priority is the priority of the message, in a queue that has priorities.
func Priority(n int) EnqueueOption {
	return enqueueOption(func(o *EnqueueOptions) { o.Priority = n })
}

// Unique stores the message once in a period, which begins with the first one.
func Unique(key string, period time.Duration) EnqueueOption {
	return enqueueOption(func(o *EnqueueOptions) { o.UniqueKey, o.UniqueFor = key, period })
}
