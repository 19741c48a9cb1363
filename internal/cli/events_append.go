package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tidewire/tidewire/eventstore"
)

type eventsAppendCmd struct {
	Type []string `name:"type" sep:"none" placeholder:"NAME" help:"Append one event of this type. Without this flag, each line of the standard input is an event in JSON with type, tags, data or data_base64, and id."`
	Tag  []string `sep:"none" placeholder:"TAG" help:"A tag of the event. Give the flag again for more tags."`
	Data string   `placeholder:"JSON" help:"Data of the event, in JSON."`
	ID   string   `name:"id" placeholder:"ID" help:"Id of the event. Appending an event with the same id again does nothing."`

	UnlessType []string `name:"unless-type" sep:"none" placeholder:"NAME" help:"Condition: fail if there is an event of this type, …"`
	UnlessTag  []string `name:"unless-tag" sep:"none" placeholder:"TAG" help:"… with this tag (give the flag again for more: it must have all of them), …"`
	After      int64    `help:"… after this position. Default: at any position."`
	storeFlags
}

// Run is called by kong.
func (c *eventsAppendCmd) Run(p *process) error {
	if len(c.Type) > 1 {
		return exit(ExitUsage, "--type: an event has one")
	}
	if len(c.Type) == 0 && (len(c.Tag) > 0 || c.Data != "" || c.ID != "") {
		return exit(ExitUsage, "--tag, --data and --id go with --type")
	}
	if c.After != 0 && !c.conditional() {
		return exit(ExitUsage, "--after goes with --unless-type or --unless-tag")
	}
	return c.withNew(p, func(store *eventstore.Store) error {
		if len(c.Type) == 0 {
			return c.lines(p, store)
		}
		e := eventstore.Event{Type: c.Type[0], Tags: c.Tag, ID: c.ID, Data: []byte(c.Data), JSON: c.Data != ""}
		at, err := c.append(p.ctx, store, []eventstore.Event{e})
		if err == nil {
			fmt.Fprintf(p.Out, "appended 1, last position %d\n", at.Last)
		}
		return err
	})
}

func (c *eventsAppendCmd) conditional() bool { return len(c.UnlessType)+len(c.UnlessTag) > 0 }

func (c *eventsAppendCmd) append(ctx context.Context, store *eventstore.Store, events []eventstore.Event) (eventstore.Appended, error) {
	if !c.conditional() {
		return store.Append(ctx, events...)
	}
	return store.AppendIf(ctx, events, eventstore.Condition{
		FailIfEventsMatch: queryFlags{c.UnlessType, c.UnlessTag}.query(), After: c.After,
	})
}

// appendLines is the number of lines in one append.
const appendLines = 500

// lines appends the lines of the standard input, appendLines at a time, or all
// in one append if there is a condition.
func (c *eventsAppendCmd) lines(p *process, store *eventstore.Store) (err error) {
	var batch []eventstore.Event
	count, last := 0, int64(0)
	defer func() {
		if count > 0 || err == nil {
			fmt.Fprintf(p.Out, "appended %d, last position %d\n", count, last)
		}
	}()
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		at, err := c.append(p.ctx, store, batch)
		if err != nil {
			return err
		}
		count, last, batch = count+len(batch), at.Last, batch[:0]
		return nil
	}
	in := bufio.NewReader(p.In)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if err == io.EOF && len(text) == 0 {
			return flush()
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("read the standard input: %w", err)
		}
		if strings.TrimSpace(string(text)) == "" {
			continue
		}
		var line eventLine
		e := eventstore.Event{}
		if err := json.Unmarshal(text, &line); err != nil {
			return exit(ExitUsage, "line %d: no event in JSON: %w", n, err)
		}
		if e, err = line.event(); err != nil {
			return exit(ExitUsage, "line %d: %w", n, err)
		}
		if batch = append(batch, e); len(batch) == appendLines && !c.conditional() {
			if err := flush(); err != nil {
				return fmt.Errorf("lines up to %d: %w", n, err)
			}
		}
	}
}
