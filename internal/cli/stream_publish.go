package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidewire/tidewire/stream"
)

type streamPublishCmd struct {
	Name   string            `arg:"" help:"The stream."`
	Text   []string          `arg:"" optional:"" help:"Payloads of the messages. Default: the lines of the standard input."`
	Key    string            `help:"Key of the messages."`
	Header map[string]string `placeholder:"NAME=VALUE" help:"A header. Give the flag again for more headers."`
	JSON   bool              `name:"json" help:"Each line is a message in JSON, as tail prints it: payload or payload_base64, key, headers. Position and time are ignored."`
	databaseFlags
}

// Run is called by kong.
func (c *streamPublishCmd) Run(p *process) error {
	if c.JSON && (c.Key != "" || len(c.Header) > 0) {
		return exit(ExitUsage, "with --json, key and headers are in the lines")
	}
	if err := refuseReserved("stream", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		s, err := stream.Lookup(p.ctx, pool, c.Name)
		if err != nil {
			return explainStream(err)
		}
		if err := refuseQueueStream(p.ctx, pool, c.Name, "enqueue to it over /ws or /v1/queues"); err != nil {
			return err
		}
		return c.publish(p, pool, s)
	})
}

// published counts the committed messages, and keeps the first error.
type published struct {
	count atomic.Int64
	last  atomic.Int64
	mu    sync.Mutex
	err   error
}

func (r *published) done(at stream.Appended, err error) {
	if err == nil {
		r.count.Add(1)
		r.last.Store(at.Last)
		return
	}
	r.fail(err)
}

func (r *published) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *published) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// publish sends line by line, and prints at the end how many messages are committed.
func (c *streamPublishCmd) publish(p *process, pool *pgxpool.Pool, s *stream.Stream) error {
	hub := stream.NewHub(pool, stream.HubConfig{Announce: true, Log: p.log})
	appender := stream.NewPartitionedAppender(pool, s, stream.PartitionedConfig{
		Appender: stream.AppenderConfig{Hub: hub, Writer: stream.WriterConfig{Log: p.log}},
	})
	var result published
	var announcing, appending sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(p.ctx))
	hubCtx, stopHub := context.WithCancel(ctx)
	announcing.Go(func() { hub.Run(hubCtx) })
	appender.Start()
	appending.Go(func() { <-ctx.Done(); appender.Stop() })
	err := c.lines(p, func(m stream.Message) error {
		if err := result.failed(); err != nil {
			return err
		}
		return appender.Submit(p.ctx, []stream.Message{m}, result.done)
	})
	stop() // accepted messages are written first
	appending.Wait()
	stopHub()
	announcing.Wait()
	if n := result.count.Load(); n > 0 {
		fmt.Fprintf(p.Out, "published %d, last position %d\n", n, result.last.Load())
	} else {
		fmt.Fprintln(p.Out, "published 0")
	}
	if err = errors.Join(err, result.failed()); err != nil {
		return explainStream(err)
	}
	return nil
}

// lines calls send with each message.
func (c *streamPublishCmd) lines(p *process, send func(stream.Message) error) error {
	headers, err := headersOf(c.Header)
	if err != nil {
		return err
	}
	return payloads(p, c.Text, func(text []byte, line int) error {
		m := stream.Message{Key: c.Key, Headers: headers, Payload: text}
		if c.JSON && line > 0 {
			if m, err = parseMessageLine(text); err != nil {
				return exit(ExitUsage, "%w", err)
			}
		}
		return send(m)
	})
}

// payloads calls send with each of the arguments, or, if there are none, with each line of the standard input and
// its number, from 1 on. Its errors name the line.
func payloads(p *process, args []string, send func(text []byte, line int) error) error {
	for _, text := range args {
		if err := send([]byte(text), 0); err != nil {
			return err
		}
	}
	if len(args) > 0 {
		return nil
	}
	in := bufio.NewReader(p.In)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read the standard input: %w", err)
		}
		if err := send(trimNewline(line), n); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// headersOf returns headers as a JSON object.
func headersOf(header map[string]string) (json.RawMessage, error) {
	if len(header) == 0 {
		return nil, nil
	}
	return json.Marshal(header)
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// parseMessageLine is the inverse of newMessageLine.
func parseMessageLine(text []byte) (stream.Message, error) {
	var line messageLine
	if err := json.Unmarshal(text, &line); err != nil {
		return stream.Message{}, fmt.Errorf("no message in JSON: %w", err)
	}
	if line.Payload != "" && line.Base64 != nil {
		return stream.Message{}, errors.New("payload and payload_base64 exclude each other")
	}
	m := stream.Message{Key: line.Key, Headers: line.Headers, Payload: line.Base64}
	if m.Payload == nil {
		m.Payload = []byte(line.Payload)
	}
	return m, nil
}
