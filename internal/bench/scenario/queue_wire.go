package scenario

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
	"github.com/tidewire/tidewire/internal/wire"
)

// overWire is a strategy through a serving node: every writer and every reader
// is a client of its /ws, and none of them connects to PostgreSQL.
func overWire(direct sides) sides {
	direct.describe += "; over a serving node's WebSocket"
	direct.writer = func(ctx context.Context, _ *pgxpool.Pool, load QueueLoad) (writeSide, error) {
		return newWireWriter(ctx, load)
	}
	direct.reader = func(_ context.Context, _ *pgxpool.Pool, load QueueLoad) (readSide, error) {
		return &wireReader{load: load, how: direct.wire}, nil
	}
	return direct
}

// wireWriter has a connection for each writer, or fewer that they share.
type wireWriter struct {
	load    QueueLoad
	clients []*bench.Wire
}

func newWireWriter(ctx context.Context, load QueueLoad) (*wireWriter, error) {
	w := &wireWriter{load: load}
	for range cmp.Or(load.Connections, load.Writers) {
		c, err := bench.DialWireAs(ctx, load.Server, load.wire())
		if err != nil {
			w.close()
			return nil, fmt.Errorf("connect writer: %w", err)
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

func (w *wireWriter) send(_ context.Context, writer, stream int, payloads [][]byte, done func(error)) error {
	verb, kind := "publish", "stream"
	if w.load.Mode == "queue" {
		verb, kind = "enqueue", "queue"
	}
	w.clients[writer%len(w.clients)].Request(func(out *wire.Writer) {
		text(out, "type", verb)
		text(out, kind, w.load.streamName(stream))
		if len(payloads) == 1 {
			out.Data("payload", "payload_base64", payloads[0])
			return
		}
		out.Name("messages")
		out.OpenList()
		for _, p := range payloads {
			out.Next()
			out.Open()
			out.Data("payload", "payload_base64", p)
			out.Close()
		}
		out.CloseList()
	}, func(m bench.WireMessage, err error) {
		if err == nil {
			err = m.Err()
		}
		done(err)
	})
	return nil
}

func text(out *wire.Writer, name, value string) {
	out.Name(name)
	out.Text(value)
}

func integer(out *wire.Writer, name string, value int64) {
	out.Name(name)
	out.Int(value)
}

func (w *wireWriter) close() { closeAll(w.clients) }

// wireReading describes the messages with which a reader requests and acknowledges.
type wireReading struct {
	name  string                                          // of the subscription or queue
	begin func(out *wire.Writer)                          // the request's fields
	ack   func(out *wire.Writer, got []bench.WireMessage) // the fields of the acknowledgement
	more  func(out *wire.Writer, n int)                   // the fields of a request for more credits; nil: an ack renews them
}

// leaseWire consumes a queue.
func leaseWire(l QueueLoad, nth int) wireReading {
	queue := l.streamName(l.streamOf(nth))
	return wireReading{
		name: queue,
		begin: func(out *wire.Writer) {
			text(out, "type", "consume")
			text(out, "queue", queue)
			integer(out, "credits", int64(l.ReadBatch))
		},
		ack: func(out *wire.Writer, got []bench.WireMessage) {
			text(out, "type", "ack")
			text(out, "queue", queue)
			out.Name("deliveries")
			out.OpenList()
			for i := range got {
				out.Next()
				out.Text(got[i].Delivery)
			}
			out.CloseList()
		},
	}
}

// logWire is a group's subscription.
func logWire(l QueueLoad, nth int) wireReading {
	stream, group := l.streamName(l.streamOf(nth)), groupName(l, nth)
	name := stream // as others have it, so that the server encodes each message once
	if l.Streams > 1 {
		name = fmt.Sprint(nth) // a connection may have several subscriptions of a stream
	}
	return wireReading{
		name: name,
		begin: func(out *wire.Writer) {
			text(out, "type", "subscribe")
			text(out, "stream", stream)
			text(out, "subscription", name)
			text(out, "group", group)
			integer(out, "credits", int64(2*l.ReadBatch)) // two batches, so that the next is on its way while one is acknowledged
		},
		ack: func(out *wire.Writer, got []bench.WireMessage) {
			text(out, "type", "commit")
			text(out, "stream", stream)
			text(out, "group", group)
			integer(out, "position", got[len(got)-1].Position)
		},
		more: func(out *wire.Writer, n int) {
			text(out, "type", "credit")
			text(out, "subscription", name)
			integer(out, "n", int64(n))
		},
	}
}

// readersPerClient is the number of readers of many streams that share a
// connection: the server's maximum of subscriptions on one connection.
const readersPerClient = 100

// wireReader opens a connection for each reader, or for each hundred of them.
type wireReader struct {
	load    QueueLoad
	how     func(l QueueLoad, number int) wireReading
	clients []*bench.Wire
}

func (r *wireReader) open(ctx context.Context, number int) (source, error) {
	if r.load.Streams <= 1 || number%readersPerClient == 0 {
		client, err := bench.DialWireAs(ctx, r.load.Server, r.load.wire())
		if err != nil {
			return nil, fmt.Errorf("connect reader: %w", err)
		}
		r.clients = append(r.clients, client)
	}
	client := r.clients[len(r.clients)-1]
	s := &wireSource{client: client, reading: r.how(r.load, number), most: r.load.ReadBatch}
	s.inbox = client.Inbox(s.reading.name)
	if _, err := client.Await(s.reading.begin); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *wireReader) close() { closeAll(r.clients) }

// received is how many bytes the server has sent to all readers.
func (r *wireReader) received() (bytes int64) {
	for _, c := range r.clients {
		bytes += c.Received()
	}
	return bytes
}

// wireSource is one reader.
type wireSource struct {
	client   *bench.Wire
	inbox    *bench.Inbox
	reading  wireReading
	most     int
	arrived  []bench.WireMessage // and not returned yet
	memory   []bench.WireMessage
	got      []bench.WireMessage
	payloads [][]byte
}

func (s *wireSource) receive(ctx context.Context) ([][]byte, error) {
	if len(s.arrived) == 0 {
		arrived, err := s.inbox.Next(ctx, s.memory)
		if err != nil {
			return nil, err
		}
		s.arrived, s.memory = arrived, arrived
	}
	s.got = s.arrived[:min(s.most, len(s.arrived))]
	s.arrived = s.arrived[len(s.got):]
	s.payloads = s.payloads[:0]
	for i := range s.got {
		if err := s.got[i].Err(); err != nil {
			return nil, err
		}
		s.payloads = append(s.payloads, s.got[i].Payload)
	}
	return s.payloads, nil
}

func (s *wireSource) ack(context.Context) error {
	if s.reading.more != nil {
		s.client.Notify(func(out *wire.Writer) { s.reading.more(out, len(s.got)) })
	}
	_, err := s.client.Await(func(out *wire.Writer) { s.reading.ack(out, s.got) })
	return err
}

func (*wireSource) close() {} // wireReader closes the connection

// closeAll closes the connections at the same time.
func closeAll(clients []*bench.Wire) {
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(c.Close)
	}
	closing.Wait()
}
