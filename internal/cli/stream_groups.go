package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidewire/tidewire/stream"
)

type streamGroupsCmd struct {
	Name string `arg:"" help:"The stream."`
	databaseFlags
}

// Run is called by kong.
func (c *streamGroupsCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		s, err := stream.Lookup(p.ctx, pool, c.Name)
		if err != nil {
			return explainStream(err)
		}
		groups, err := allGroups(p.ctx, s)
		if err != nil {
			return explainStream(err)
		}
		printGroups(p, groups)
		return nil
	})
}

func printGroups(p *process, groups []stream.GroupInfo) {
	t := plainTable("group", "offset", "lag", "made")
	rightAligned(t, 2, 3)
	for _, g := range groups {
		t.AppendRow(table.Row{g.Name, g.Offset, g.Lag, g.CreatedAt.Format(time.DateTime)})
	}
	fmt.Fprintln(p.Out, t.Render())
}

// groupArgs name a group of a stream.
type groupArgs struct {
	Name  string `arg:"" help:"The stream."`
	Group string `arg:"" help:"The group."`
	databaseFlags
}

// with runs work on the stream, if clients may have groups in it.
func (a groupArgs) with(p *process, work func(s *stream.Stream) error) error {
	if err := refuseReserved("group", a.Group); err != nil {
		return err
	}
	return a.withPool(p, func(pool *pgxpool.Pool) error {
		if err := refuseQueueStream(p.ctx, pool, a.Name, "it has no groups"); err != nil {
			return err
		}
		s, err := stream.Lookup(p.ctx, pool, a.Name)
		if err == nil {
			err = work(s)
		}
		return explainStream(err)
	})
}

type streamSeekCmd struct {
	groupArgs
	startFlags
}

// Run is called by kong.
func (c *streamSeekCmd) Run(p *process) error {
	to, err := c.start(time.Now(), stream.Start{})
	if err != nil {
		return err
	}
	if c.startFlags == (startFlags{}) {
		return exit(ExitUsage, "stream seek needs --after, --since or --from")
	}
	return c.with(p, func(s *stream.Stream) error {
		offset, err := s.SeekGroup(p.ctx, c.Group, to)
		if err == nil {
			fmt.Fprintf(p.Out, "offset %d\n", offset)
		}
		return err
	})
}

type streamDropGroupCmd struct {
	groupArgs
	Yes bool `help:"Confirm. This cannot be undone."`
}

// Run is called by kong.
func (c *streamDropGroupCmd) Run(p *process) error {
	if !c.Yes {
		return exit(ExitUsage, "stream drop-group removes the group %q of %q permanently: confirm with --yes", c.Group, c.Name)
	}
	return c.with(p, func(s *stream.Stream) error { return s.DropGroup(p.ctx, c.Group) })
}

// groupsPage is the number of groups in one query.
const groupsPage = 1000

// allGroups reads the groups of a stream page by page, so that no query takes long.
func allGroups(ctx context.Context, s *stream.Stream) (all []stream.GroupInfo, err error) {
	for after := ""; ; after = all[len(all)-1].Name {
		page, err := s.GroupsAfter(ctx, after, groupsPage)
		all = append(all, page...)
		if err != nil || len(page) < groupsPage {
			return all, err
		}
	}
}
