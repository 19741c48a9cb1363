package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidewire/tidewire/eventstore"
)

// eventsCmd has the commands for event stores, for people and scripts.
type eventsCmd struct {
	Create eventsCreateCmd `cmd:"" help:"Create an event store. append creates it too."`
	List   eventsListCmd   `cmd:"" help:"List the event stores."`
	Append eventsAppendCmd `cmd:"" help:"Append events: one event from flags, or one from each line of the standard input, in JSON."`
	Query  eventsQueryCmd  `cmd:"" help:"Print the stored events that match, then exit."`
	Tail   eventsTailCmd   `cmd:"" help:"Print new events that match as they arrive, until Ctrl-C."`
	Stats  eventsStatsCmd  `cmd:"" help:"List the event stores, or count the matching events of one store."`
	Drop   eventsDropCmd   `cmd:"" help:"Remove an event store with all its events."`
}

// storeFlags choose the event store.
type storeFlags struct {
	Store string `default:"default" help:"The event store. append creates it if it does not exist."`
	databaseFlags
}

// with calls use with the store, which must exist.
func (f storeFlags) with(p *process, use func(*eventstore.Store) error) error {
	return f.withPool(p, f.use(p, (*eventstore.Client).Lookup, use))
}

// withNew calls use with the store, and creates it if it does not exist.
func (f storeFlags) withNew(p *process, use func(*eventstore.Store) error) error {
	if err := refuseReserved("event store", f.Store); err != nil {
		return err
	}
	return f.withPool(p, f.use(p, (*eventstore.Client).Ensure, use))
}

func (f storeFlags) use(p *process, get func(*eventstore.Client, context.Context, string) (*eventstore.Store, error),
	use func(*eventstore.Store) error) func(*pgxpool.Pool) error {
	return func(pool *pgxpool.Pool) error {
		client, err := eventstore.Open(p.ctx, pool, eventstore.Config{Log: p.log})
		if err != nil {
			return explainEvents(err)
		}
		store, err := get(client, p.ctx, f.Store)
		if err == nil {
			err = use(store)
		}
		return explainEvents(errors.Join(err, client.Close(context.WithoutCancel(p.ctx))))
	}
}

// explainEvents gives the errors of event stores their exit codes.
func explainEvents(err error) error {
	var invalid *eventstore.InvalidError
	var coded *exitError
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case errors.As(err, &invalid):
		return exit(ExitUsage, "%w", err)
	case errors.Is(err, eventstore.ErrNotFound), errors.Is(err, eventstore.ErrConflict), errors.Is(err, eventstore.ErrHistoryLost), errors.Is(err, eventstore.ErrDuplicateID):
		return exit(ExitFailure, "%w", err)
	}
	return explainDatabase(err)
}

// eventLine is an event as a line of JSON.
type eventLine struct {
	Position int64           `json:"position,omitempty"`
	Time     *time.Time      `json:"time,omitempty"`
	Type     string          `json:"type"`
	Tags     []string        `json:"tags,omitempty"`
	Data     json.RawMessage `json:"data,omitempty"`
	Base64   []byte          `json:"data_base64,omitempty"`
	ID       string          `json:"id,omitempty"`
}

func (l *eventLine) event() (eventstore.Event, error) {
	e := eventstore.Event{Type: l.Type, Tags: l.Tags, ID: l.ID, Data: l.Base64}
	if len(l.Data) > 0 {
		if l.Base64 != nil {
			return e, errors.New("data and data_base64 exclude each other")
		}
		e.Data, e.JSON = l.Data, true
	}
	return e, nil
}

func newEventLine(e *eventstore.Event) eventLine {
	l := eventLine{Position: e.Position, Time: &e.Time, Type: e.Type, Tags: e.Tags, ID: e.ID}
	if e.JSON {
		l.Data = e.Data
	} else {
		l.Base64 = e.Data
	}
	return l
}

// queryFlags select events.
type queryFlags struct {
	Type []string `sep:"none" placeholder:"NAME" help:"Only events of this type. Give the flag again for events of any of several types."`
	Tag  []string `sep:"none" placeholder:"TAG" help:"Only events with this tag. Give the flag again for events with all of several tags."`
}

func (f queryFlags) query() eventstore.Query {
	if len(f.Type) == 0 && len(f.Tag) == 0 {
		return eventstore.Everything()
	}
	return eventstore.Query{Items: []eventstore.Item{{Types: f.Type, Tags: f.Tag}}}
}

type eventsQueryCmd struct {
	queryFlags
	After     int64 `help:"Only events after this position."`
	Before    int64 `help:"Only events before this position. Default: to the end."`
	Limit     int   `short:"n" help:"Print at most N events. Default: all."`
	Backwards bool  `help:"Print the newest event first."`
	storeFlags
}

// Run is called by kong.
func (c *eventsQueryCmd) Run(p *process) error {
	if c.After < 0 || c.Before < 0 || c.Limit < 0 {
		return exit(ExitUsage, "--after, --before and --limit: want 0 or more")
	}
	return c.with(p, func(store *eventstore.Store) error {
		out := newEventPrinter(p)
		for e, err := range store.QueryStream(p.ctx, c.query(), eventstore.ReadOptions{
			After: c.After, Before: c.Before, Limit: c.Limit, Backwards: c.Backwards,
		}) {
			if err != nil {
				return errors.Join(err, out.Flush())
			}
			if err := out.print(&e); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}

type eventPrinter struct {
	*bufio.Writer
	lines *json.Encoder
}

func newEventPrinter(p *process) eventPrinter {
	out := bufio.NewWriter(p.Out)
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)
	return eventPrinter{out, lines}
}

func (o eventPrinter) print(e *eventstore.Event) error {
	if err := o.lines.Encode(newEventLine(e)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

type eventsTailCmd struct {
	queryFlags
	After *int64 `help:"Begin after this position. Default: only new events."`
	Count int    `short:"n" placeholder:"N" help:"Exit after N events. Default: never."`
	storeFlags
}

// Run is called by kong.
func (c *eventsTailCmd) Run(p *process) error {
	if c.Count < 0 || c.After != nil && *c.After < 0 {
		return exit(ExitUsage, "--count and --after: want 0 or more")
	}
	return c.with(p, func(store *eventstore.Store) error {
		after, err := c.begin(p.ctx, store)
		if err != nil {
			return err
		}
		sub, err := store.Follow(c.query(), after)
		if err != nil {
			return err
		}
		defer sub.Close()
		out := newEventPrinter(p)
		for printed := 0; c.Count == 0 || printed < c.Count; {
			page, err := sub.Next(p.ctx)
			if err != nil {
				if p.ctx.Err() != nil { // Ctrl-C is the normal end
					return nil
				}
				return err
			}
			for i := range page {
				if printed++; c.Count > 0 && printed > c.Count {
					break
				}
				if err := out.print(&page[i]); err != nil {
					return err
				}
			}
			if err := out.Flush(); err != nil {
				return fmt.Errorf("print: %w", err)
			}
		}
		return nil
	})
}

func (c *eventsTailCmd) begin(ctx context.Context, store *eventstore.Store) (int64, error) {
	if c.After != nil {
		return *c.After, nil
	}
	return store.Head(ctx)
}

type eventsStatsCmd struct {
	queryFlags
	storeFlags
}

// Run is called by kong.
func (c *eventsStatsCmd) Run(p *process) error {
	if len(c.Type) == 0 && len(c.Tag) == 0 {
		return c.withPool(p, func(pool *pgxpool.Pool) error { return c.list(p, pool) })
	}
	return c.with(p, func(store *eventstore.Store) error {
		count := eventstore.Projector[int]{
			Query: c.query(), Apply: func(n int, _ eventstore.Event) int { return n + 1 },
		}.Projection()
		guard, err := store.Project(p.ctx, count)
		if err == nil {
			fmt.Fprintf(p.Out, "events: %d\nas of position: %d\n", count.State, guard.After)
		}
		return err
	})
}

func (c *eventsStatsCmd) list(p *process, pool *pgxpool.Pool) error {
	names, err := eventstore.List(p.ctx, pool)
	if err != nil {
		return explainEvents(err)
	}
	t := plainTable("store", "last position", "made")
	rightAligned(t, 2)
	client, err := eventstore.Open(p.ctx, pool, eventstore.Config{})
	if err != nil {
		return explainEvents(err)
	}
	defer client.Close(context.WithoutCancel(p.ctx))
	for _, name := range names {
		store, err := client.Lookup(p.ctx, name)
		if errors.Is(err, eventstore.ErrNotFound) { // dropped since it was listed
			continue
		}
		if err != nil {
			return explainEvents(err)
		}
		head, err := store.Head(p.ctx)
		if err != nil {
			return explainEvents(err)
		}
		t.AppendRow(table.Row{name, head, store.CreatedAt().Format(time.DateTime)})
	}
	fmt.Fprintln(p.Out, t.Render())
	return nil
}
