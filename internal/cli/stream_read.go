package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

// messageLine is a message as a line of JSON. Payload is text; bytes that are
// not text are in Base64.
type messageLine struct {
	Position int64           `json:"position,omitempty"`
	Time     *time.Time      `json:"time,omitempty"`
	Key      string          `json:"key,omitempty"`
	Headers  json.RawMessage `json:"headers,omitempty"`
	Payload  string          `json:"payload,omitempty"`
	Base64   []byte          `json:"payload_base64,omitempty"`
}

func newMessageLine(m *stream.Message) messageLine {
	line := messageLine{Position: m.Position, Time: &m.Time, Key: m.Key, Headers: m.Headers}
	if utf8.Valid(m.Payload) {
		line.Payload = string(m.Payload)
	} else {
		line.Base64 = m.Payload
	}
	return line
}

// printFlags control how messages are printed.
type printFlags struct {
	Raw bool `help:"Print only the payloads, one on each line, instead of JSON."`
}

// printer prints messages and counts them.
type printer struct {
	raw     bool
	out     *bufio.Writer
	encoder *json.Encoder
}

func (f printFlags) printer(p *process) *printer {
	out := bufio.NewWriter(p.Out)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return &printer{raw: f.Raw, out: out, encoder: encoder}
}

// page prints messages, and flushes them before it returns.
func (p *printer) page(messages []stream.Message) error {
	for i := range messages {
		var err error
		if p.raw {
			p.out.Write(messages[i].Payload) // Flush returns its error too
			err = p.out.WriteByte('\n')
		} else {
			err = p.encoder.Encode(newMessageLine(&messages[i]))
		}
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

type streamTailCmd struct {
	Name  string `arg:"" help:"The stream."`
	Group string `placeholder:"NAME" help:"Read as this group: begin after its offset, and commit the position of each printed message. The group is created if it does not exist."`
	Count int    `short:"n" placeholder:"N" help:"Exit after N messages. Default: never."`
	startFlags
	printFlags
	databaseFlags
}

// Run is called by kong.
func (c *streamTailCmd) Run(p *process) error {
	if c.Count < 0 {
		return exit(ExitUsage, "--count is %d: want at least 1", c.Count)
	}
	start, err := c.start(time.Now(), stream.AtEnd())
	if err == nil {
		err = refuseReserved("group", c.Group)
	}
	if err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		s, err := stream.Lookup(p.ctx, pool, c.Name)
		if err != nil {
			return explainStream(err)
		}
		return c.follow(p, pool, s, start)
	})
}

func (c *streamTailCmd) follow(p *process, pool *pgxpool.Pool, s *stream.Stream, start stream.Start) error {
	hub := stream.NewHub(pool, stream.HubConfig{Log: p.log})
	groups := stream.NewGroups(pool, stream.GroupsConfig{Log: p.log})
	ctx, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	var running sync.WaitGroup
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() { groups.Run(ctx) })
	defer running.Wait()
	defer stop()

	sub, commit, err := c.subscribe(p, hub, groups, s, start)
	if err != nil {
		return explainStream(err)
	}
	defer sub.Close()
	out := c.printer(p)
	for printed := 0; c.Count == 0 || printed < c.Count; {
		page, err := sub.Next(p.ctx)
		if err != nil {
			if p.ctx.Err() != nil { // Ctrl-C is the normal end
				return nil
			}
			return explainStream(err)
		}
		if c.Count > 0 && len(page) > c.Count-printed {
			page = page[:c.Count-printed]
		}
		if err := out.page(page); err != nil {
			return err
		}
		printed += len(page)
		if err := commit(ctx, page[len(page)-1].Position); err != nil {
			return explainStream(err)
		}
	}
	return nil
}

// subscribe starts the subscription, and returns a function that commits what was printed.
func (c *streamTailCmd) subscribe(p *process, hub *stream.Hub, groups *stream.Groups, s *stream.Stream, start stream.Start) (
	*stream.Subscription, func(context.Context, int64) error, error) {
	if c.Group == "" {
		sub, err := hub.Subscribe(p.ctx, s, start)
		return sub, func(context.Context, int64) error { return nil }, err
	}
	g, err := groups.Open(p.ctx, s, c.Group, stream.GroupOptions{Start: start})
	if err != nil {
		return nil, nil, err
	}
	sub, err := g.Subscribe(p.ctx, hub)
	return sub, func(ctx context.Context, position int64) error {
		_, err := g.Commit(ctx, position)
		return err
	}, err
}

type streamReplayCmd struct {
	Name string `arg:"" help:"The stream."`
	Key  string `help:"Only messages with this key; the stream must be keyed."`
	startFlags
	printFlags
	databaseFlags
}

// replayPage is the number of messages in one read.
const replayPage = 1000

// Run is called by kong.
func (c *streamReplayCmd) Run(p *process) error {
	start, err := c.start(time.Now(), stream.Start{})
	if err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		s, err := stream.Lookup(p.ctx, pool, c.Name)
		if err != nil {
			return explainStream(err)
		}
		return c.print(p, pool, s, start)
	})
}

// print prints the messages that are committed when it begins.
func (c *streamReplayCmd) print(p *process, pool *pgxpool.Pool, s *stream.Stream, start stream.Start) error {
	sub, err := stream.NewHub(pool, stream.HubConfig{}).Subscribe(p.ctx, s, start)
	if err != nil {
		return explainStream(err)
	}
	after := sub.Position()
	sub.Close()
	if c.Key != "" && !s.Keyed() {
		return explainStream(fmt.Errorf("stream %q: %w", s.Name(), stream.ErrNotKeyed))
	}
	head, err := s.Head(p.ctx)
	if err != nil {
		return explainStream(err)
	}
	if after > head { // a position that the stream has not reached, or has lost
		return explainStream(s.Check(p.ctx, after))
	}
	out := c.printer(p)
	for after < head {
		page, err := c.page(p.ctx, s, after, head)
		if err != nil {
			return explainStream(err)
		}
		if len(page) == 0 {
			return nil
		}
		if err := out.page(page); err != nil {
			return err
		}
		after = page[len(page)-1].Position
	}
	return nil
}

func (c *streamReplayCmd) page(ctx context.Context, s *stream.Stream, after, head int64) ([]stream.Message, error) {
	if c.Key != "" {
		return s.ReadKey(ctx, c.Key, after, head, replayPage)
	}
	page, err := s.Read(ctx, after, replayPage)
	for len(page) > 0 && page[len(page)-1].Position > head {
		page = page[:len(page)-1]
	}
	return page, err
}
