package scenario

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
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

// wireWriter has a connection for each writer.
type wireWriter struct {
	load    QueueLoad
	clients []*bench.Wire
}

func newWireWriter(ctx context.Context, load QueueLoad) (*wireWriter, error) {
	w := &wireWriter{load: load}
	for range load.Writers {
		c, err := bench.DialWire(ctx, load.Server)
		if err != nil {
			w.close()
			return nil, fmt.Errorf("connect writer: %w", err)
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

func (w *wireWriter) send(_ context.Context, writer, stream int, payloads [][]byte, done func(error)) error {
	verb := `"type":"publish","stream":`
	if w.load.Mode == "queue" {
		verb = `"type":"enqueue","queue":`
	}
	fields := fmt.Appendf(nil, `%s%q,`, verb, w.load.streamName(stream))
	if len(payloads) == 1 {
		fields = bench.AppendWirePayload(fields, payloads[0])
	} else {
		fields = append(fields, `"messages":[`...)
		for i, p := range payloads {
			if i > 0 {
				fields = append(fields, ',')
			}
			fields = append(bench.AppendWirePayload(append(fields, '{'), p), '}')
		}
		fields = append(fields, ']')
	}
	w.clients[writer].Send(fields, func(m bench.WireMessage, err error) {
		if err == nil {
			err = m.Err()
		}
		done(err)
	})
	return nil
}

func (w *wireWriter) close() { closeAll(w.clients) }

// wireReading describes the messages with which a reader requests and acknowledges.
type wireReading struct {
	name  string                               // of the subscription or queue
	begin string                               // the request's fields
	ack   func(got []bench.WireMessage) []byte // the fields of the acknowledgement
	more  func(n int) []byte                   // the fields of a request for more credits; nil: an ack renews them
}

// leaseWire consumes a queue.
func leaseWire(l QueueLoad, number int) wireReading {
	queue := l.streamName(l.streamOf(number))
	return wireReading{
		name:  queue,
		begin: fmt.Sprintf(`"type":"consume","queue":%q,"credits":%d`, queue, l.ReadBatch),
		ack: func(got []bench.WireMessage) []byte {
			fields := fmt.Appendf(nil, `"type":"ack","queue":%q,"deliveries":[`, queue)
			for i := range got {
				if i > 0 {
					fields = append(fields, ',')
				}
				fields = append(append(append(fields, '"'), got[i].Delivery...), '"')
			}
			return append(fields, ']')
		},
	}
}

// logWire is a group's subscription.
func logWire(l QueueLoad, number int) wireReading {
	stream, group := l.streamName(l.streamOf(number)), groupName(l, number)
	name := fmt.Sprint(number)
	return wireReading{
		name: name,
		// Two batches, so that the next is on its way while one is acknowledged.
		begin: fmt.Sprintf(`"type":"subscribe","stream":%q,"subscription":%q,"group":%q,"credits":%d`, stream, name, group, 2*l.ReadBatch),
		ack: func(got []bench.WireMessage) []byte {
			fields := fmt.Appendf(nil, `"type":"commit","stream":%q,"group":%q,"position":`, stream, group)
			return strconv.AppendInt(fields, got[len(got)-1].Position, 10)
		},
		more: func(n int) []byte {
			return fmt.Appendf(nil, `"type":"credit","subscription":%q,"n":%d`, name, n)
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
		client, err := bench.DialWire(ctx, r.load.Server)
		if err != nil {
			return nil, fmt.Errorf("connect reader: %w", err)
		}
		r.clients = append(r.clients, client)
	}
	client := r.clients[len(r.clients)-1]
	s := &wireSource{client: client, reading: r.how(r.load, number), most: r.load.ReadBatch}
	s.inbox = client.Inbox(s.reading.name)
	if _, err := client.Ask([]byte(s.reading.begin)); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *wireReader) close() { closeAll(r.clients) }

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
		s.client.Tell(s.reading.more(len(s.got)))
	}
	_, err := s.client.Ask(s.reading.ack(s.got))
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
