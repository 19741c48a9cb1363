package scenario

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/internal/bench"
)

// Stored compares the messages table with the messages that were sent.
type Stored struct {
	Rows       int
	Lost       int // sent and not stored
	Duplicated int // stored more than once
	Foreign    int // stored and never sent, or with another content
	Reordered  int // at a lower position than an earlier message of its client
	Checksum   uint64
	// Expected is the checksum of what was sent.
	Expected uint64
}

// OK reports whether exactly the sent messages are stored.
func (s Stored) OK() bool {
	return s.Lost == 0 && s.Duplicated == 0 && s.Foreign == 0 && s.Checksum == s.Expected
}

func (s Stored) String() string {
	return fmt.Sprintf("%d rows, %d lost, %d duplicated, %d foreign, %d reordered, checksum %x of %x",
		s.Rows, s.Lost, s.Duplicated, s.Foreign, s.Reordered, s.Checksum, s.Expected)
}

const storedSQL = `COPY (SELECT position, payload FROM public.messages WHERE created_at >= %s) TO STDOUT (FORMAT binary)`

// Verify reads what the messages table has received since a time of the
// database's clock, and compares it with what clients × messages of that size
// should have stored. The checksum is the sum of the CRC-32C of all payloads.
//
// It does not filter by position: textbook strategies use positions that were
// reserved earlier.
func Verify(ctx context.Context, pool *pgxpool.Pool, since time.Time, clients, messages, size int) (Stored, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return Stored{}, fmt.Errorf("verify: %w", err)
	}
	defer conn.Release()
	c := newChecker(clients, messages, size)
	read, write := io.Pipe()
	parsed := make(chan error, 1)
	go func() {
		err := c.read(read)
		read.CloseWithError(err) // ends COPY early; nil is never returned to it
		parsed <- err
	}()
	_, err = conn.Conn().PgConn().CopyTo(ctx, write, fmt.Sprintf(storedSQL, since.UTC().Format("'2006-01-02 15:04:05.000000+00'")))
	write.CloseWithError(err) // nil means EOF
	if parseErr := <-parsed; parseErr != nil {
		return Stored{}, fmt.Errorf("verify: %w", parseErr)
	}
	if err != nil {
		return Stored{}, fmt.Errorf("verify: %w", err)
	}
	return c.result(), nil
}

// checker accepts rows in any order.
type checker struct {
	clients, messages int
	filler            []byte
	table             *crc32.Table
	positions         []int64 // by client and message; 0: not seen
	stored            Stored
}

func newChecker(clients, messages, size int) *checker {
	return &checker{
		clients: clients, messages: messages,
		filler:    bench.AppendPayload(nil, 0, 0, size),
		table:     crc32.MakeTable(crc32.Castagnoli),
		positions: make([]int64, clients*messages),
	}
}

func (c *checker) row(position int64, payload []byte) {
	c.stored.Rows++
	c.stored.Checksum += uint64(crc32.Checksum(payload, c.table))
	client, seq, ok := bench.ParsePayload(payload, c.filler)
	if !ok || client >= c.clients || seq >= c.messages {
		c.stored.Foreign++
		return
	}
	at := &c.positions[client*c.messages+seq]
	if *at != 0 {
		c.stored.Duplicated++
		return
	}
	*at = position
}

func (c *checker) result() Stored {
	payload := make([]byte, 0, len(c.filler))
	for client := range c.clients {
		last := int64(0)
		for seq := range c.messages {
			payload = bench.AppendPayload(payload[:0], client, seq, bench.MinPayload)
			payload = append(payload, c.filler[bench.MinPayload:]...)
			c.stored.Expected += uint64(crc32.Checksum(payload, c.table))
			position := c.positions[client*c.messages+seq]
			switch {
			case position == 0:
				c.stored.Lost++
			case position < last:
				c.stored.Reordered++
			default:
				last = position
			}
		}
	}
	return c.stored
}

// read parses binary COPY: a header, rows of two fields, a trailer.
func (c *checker) read(r io.Reader) error {
	const header = 19
	buf := make([]byte, 0, 256<<10)
	skip := header
	for {
		if len(buf) == cap(buf) { // one row larger than the buffer
			buf = append(buf, make([]byte, cap(buf))...)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if skip > 0 && len(buf) >= skip {
			buf, skip = buf[:copy(buf, buf[skip:])], 0
		}
		if skip == 0 {
			used := c.rows(buf)
			buf = buf[:copy(buf, buf[used:])]
		}
		if err == io.EOF {
			if len(buf) == 2 && binary.BigEndian.Uint16(buf) == 0xffff {
				return nil
			}
			return fmt.Errorf("table ended in the middle of a row (%d bytes)", len(buf))
		}
		if err != nil {
			return err
		}
	}
}

// rows handles the complete rows of buf and returns their size in bytes.
func (c *checker) rows(buf []byte) (used int) {
	const before = 2 + 4 + 8 + 4 // fields, length and value of position, length of payload
	for {
		b := buf[used:]
		if len(b) < before {
			return used
		}
		size := int(binary.BigEndian.Uint32(b[before-4:]))
		if len(b) < before+size {
			return used
		}
		c.row(int64(binary.BigEndian.Uint64(b[6:])), b[before:before+size])
		used += before + size
	}
}
