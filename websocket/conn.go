package websocket

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var (
	// ErrSlowReader is Queue's error for a frame that would exceed MaxUnsent.
	// The frame is not queued; the connection stays open.
	ErrSlowReader = errors.New("websocket: peer reads too slowly")

	// ErrWriteTimeout is the error of a connection whose peer read nothing for
	// WriteTimeout, or did not read everything within the CloseTimeout.
	ErrWriteTimeout = errors.New("websocket: peer did not read in time")

	// ErrClosed is the error of Queue after the Close frame, and of everything
	// after Close or Abort. It is net.ErrClosed too.
	ErrClosed error = closedError{}
)

type closedError struct{}

func (closedError) Error() string        { return "websocket: connection closed" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }

// Conn is one WebSocket connection. One goroutine at a time may call Read; all
// other methods are safe for concurrent use. Every Conn must be ended by Close
// or Abort.
type Conn struct {
	conn        net.Conn
	socket      net.Conn        // below TLS, or conn
	raw         syscall.RawConn // nil if conn is neither a plain socket nor from NewTLSListener or Dial
	secure      *secureSocket   // nil if conn is not from NewTLSListener or Dial
	cfg         Config
	client      bool
	subprotocol string
	deflate     *agreement // nil unless compression was negotiated

	// Reading. readMu is needed because Close, too, reads until the connection
	// ends.
	readMu     sync.Mutex
	dec        decoder
	lent       bool                  // the caller may use messages that Read returned
	onReadable func(fd uintptr) bool // tryRead, bound once
	readN      int                   // bytes that tryRead read
	readErr    error
	received   atomic.Int64
	traffic    traffic
	watch      watch // the time limit of unfinished messages

	toldAssembly int // to Config.Memory
	toldInflated int // to Config.Memory, in addition

	// Writing. The goroutine that sets writing owns head until it clears it: a Flush for
	// one attempt, the drain goroutine, or the writer of a chunk.
	mu         sync.Mutex
	moved      sync.Cond // signals progress or the end of the drain goroutine
	tail       *buffer   // queued; nil if nothing is
	tailSince  stamp     // since when the tail waits
	head       outgoing  // being written
	parked     outgoing  // a head that was interrupted for another lane
	live       *buffer   // queued on the live lane, or nil
	liveSince  stamp     // since when that lane waits
	liveSent   int64     // value of sent at that time
	unsent     int       // queued bytes of these buffers that the socket has not taken, and sealed
	sealed     int       // encrypted bytes that the socket has not taken
	toldOutput int       // to Config.Memory
	sent       int64     // bytes of these buffers that the socket has taken
	writing    bool
	wanted     bool   // Flush was called while another goroutine was writing
	pong       []byte // the pending answer to the latest ping, delayed while much is unsent
	stats      LaneStats
	chunked    bool  // the peer reassembles chunks
	cut        bool  // a message was aborted in the middle: only a Close frame may follow
	bulking    bool  // writing belongs to WriteBulk
	bulk       *bulk // nil if never used
	closeSent  bool
	readBy     time.Time             // deadline that SetReadDeadline set
	messageBy  time.Time             // deadline of an unfinished message
	closeBy    time.Time             // set by Close and Evict
	evicted    bool                  // Evict was called
	err        error                 // why nothing more can be written
	onWritable func(fd uintptr) bool // tryWrite, bound once
	out        []byte                // what tryWrite is to write
	writeN     int                   // bytes that it wrote
	writeErr   error
	patient    bool // tryWrite may wait for room
}

// newConn takes over a socket after the handshake; leftover are bytes that the
// peer sent right after it.
func newConn(conn net.Conn, cfg Config, client bool, leftover []byte) *Conn {
	c := &Conn{conn: conn, socket: conn, cfg: cfg, client: client}
	c.findSocket()
	c.moved.L = &c.mu
	c.onReadable = c.tryRead
	c.onWritable = c.tryWrite
	c.dec = decoder{
		size:      cfg.ReadBuffer,
		max:       cfg.MaxMessage,
		maxFrames: max(cfg.MaxFragments, 0),
		client:    client,
		anyText:   cfg.SkipUTF8Check,
		control:   c.control,
	}
	if c.raw == nil {
		c.dec.size = min(cfg.ReadBuffer, plainBuffer)
	}
	if kernel := rawConn(c.socket); kernel != nil && !client && cfg.KernelUnsent > 0 {
		_ = kernel.Control(func(fd uintptr) { limitUnsent(fd, cfg.KernelUnsent) }) // fails only if it is closed
	}
	if len(leftover) > 0 {
		c.dec.buf = getBuffer(len(leftover))
		c.dec.w = copy(c.dec.buf.b, leftover)
	}
	return c
}

// findSocket finds the socket below TLS, and how to access it.
func (c *Conn) findSocket() {
	if over, ok := c.conn.(*tls.Conn); ok {
		c.socket = over.NetConn()
		if s, ok := c.socket.(*secureSocket); ok {
			s.takeOver()
			c.secure, c.socket, c.raw = s, s.outer, s.raw
		}
		return
	}
	c.raw = rawConn(c.conn)
}

// Subprotocol returns the protocol agreed on in the handshake, or "".
func (c *Conn) Subprotocol() string { return c.subprotocol }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// SetReadDeadline makes Read return os.ErrDeadlineExceeded at that time if no
// message is complete by then; a zero time means no deadline. The connection
// stays usable. Close sets its own deadline.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closeBy.IsZero() {
		return ErrClosed
	}
	c.readBy = t
	c.moved.Broadcast()
	return c.conn.SetReadDeadline(c.readDeadline())
}

// Received returns the number of bytes that were read from the connection after the handshake: frames as the peer has
// sent them, with TLS after decryption.
func (c *Conn) Received() int64 { return c.received.Load() }

// Unsent returns the number of queued bytes that the socket has not taken. Bytes that are encrypted already count with
// the overhead of TLS.
func (c *Conn) Unsent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsent
}

// Backlog returns the number of bytes between Queue and the peer's kernel:
// those queued, and those in the local kernel that TCP has not acknowledged.
// Bytes in the peer's kernel are not counted. It costs a system call.
func (c *Conn) Backlog() int {
	unsent := c.Unsent()
	kernel := rawConn(c.socket)
	if kernel == nil {
		return unsent
	}
	_ = kernel.Control(func(fd uintptr) { unsent += sysOutgoing(fd) }) // a closed socket holds nothing
	return unsent
}
