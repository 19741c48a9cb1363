package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tidewire/tidewire/stream"
)

// streamCmd has the commands for streams, for people and scripts.
type streamCmd struct {
	Create    streamCreateCmd    `cmd:"" help:"Create a stream."`
	List      streamListCmd      `cmd:"" help:"List the streams."`
	Info      streamInfoCmd      `cmd:"" help:"Show a stream and its groups."`
	Publish   streamPublishCmd   `cmd:"" help:"Append messages: one for each argument, or for each line of the standard input."`
	Tail      streamTailCmd      `cmd:"" help:"Print new messages as they arrive, until Ctrl-C."`
	Replay    streamReplayCmd    `cmd:"" help:"Print the stored messages, then exit."`
	Retain    streamRetainCmd    `cmd:"" help:"Set what a stream keeps. A limit that is not given is removed; without flags, everything is kept. A running server drops the rest, about every 10 seconds."`
	Groups    streamGroupsCmd    `cmd:"" help:"List the groups of a stream."`
	Seek      streamSeekCmd      `cmd:"" help:"Set where a group continues, also backwards. Its readers must not run: a reader continues at its own position, and its next commit may move the offset forward again."`
	DropGroup streamDropGroupCmd `cmd:"" help:"Remove a group of a stream. A reader that still runs makes it again with its next commit."`
	Drop      streamDropCmd      `cmd:"" help:"Remove a stream with all its messages."`
}

type streamCreateCmd struct {
	Name  string `arg:"" help:"Name of the stream."`
	Keyed bool   `help:"Index the messages by key, so that the messages of one key can be read."`

	Partitions int `placeholder:"N" help:"Divide the stream into N partitions (1 to 1024). The key of a message decides its partition. Partitions are streams named NAME/0, NAME/1 and so on. Default: no partitions."`
	databaseFlags
}

// Run is called by kong.
func (c *streamCreateCmd) Run(p *process) error {
	if err := refuseReserved("stream", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		_, err := stream.Ensure(p.ctx, pool, c.Name, stream.Options{Keyed: c.Keyed, Partitions: c.Partitions})
		if errors.Is(err, stream.ErrExists) {
			return exit(ExitUsage, "%w: drop it first, or leave --keyed and --partitions as they are", err)
		}
		return explainStream(err)
	})
}

type streamListCmd struct{ databaseFlags }

// Run is called by kong.
func (c *streamListCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		all, err := stream.LookupEvery(p.ctx, pool)
		if err != nil {
			return explainStream(err)
		}
		t := plainTable("stream", "keyed", "last position", "made")
		rightAligned(t, 3)
		for _, s := range all {
			info, err := s.Info(p.ctx)
			if errors.Is(err, stream.ErrNotFound) { // dropped since it was listed
				continue
			}
			if err != nil {
				return explainStream(err)
			}
			t.AppendRow(table.Row{s.Name(), yesNo(s.Keyed()), info.Head, s.CreatedAt().Format(time.DateTime)})
		}
		fmt.Fprintln(p.Out, t.Render())
		return nil
	})
}

type streamInfoCmd struct {
	Name string `arg:"" help:"The stream."`
	databaseFlags
}

// Run is called by kong.
func (c *streamInfoCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		s, err := stream.Lookup(p.ctx, pool, c.Name)
		if err != nil {
			return explainStream(err)
		}
		info, err := s.Info(p.ctx)
		if err != nil {
			return explainStream(err)
		}
		groups, err := allGroups(p.ctx, s)
		if err != nil {
			return explainStream(err)
		}
		fmt.Fprintf(p.Out, "stream: %s\nkeyed: %s\nmade: %s\n", s.Name(), yesNo(s.Keyed()), s.CreatedAt().Format(time.DateTime))
		if n := s.Partitions(); n > 0 {
			fmt.Fprintf(p.Out, "partitions: %d, %s/0 to %[2]s/%d\nlast positions together: %d\n", n, s.Name(), n-1, info.Head)
		} else {
			fmt.Fprintf(p.Out, "last position: %d\noldest position: %d\n", info.Head, info.Oldest)
			gaps, err := s.Gaps(p.ctx)
			if err != nil {
				return explainStream(err)
			}
			for _, g := range gaps {
				fmt.Fprintf(p.Out, "failover: no messages after position %d and up to %d\n", g.After, g.UpTo)
			}
		}
		where := fmt.Sprintf("in %d segments", info.Segments)
		if info.Segments == 0 {
			where = "approximately, in the table that small streams share"
		}
		fmt.Fprintf(p.Out, "size: %s %s\nretention: %s\n", sizeText(info.Bytes), where, retentionText(info.Retention))
		if len(groups) == 0 {
			return nil
		}
		printGroups(p, groups)
		return nil
	})
}

// retentionText describes a retention policy in words.
func retentionText(r stream.Retention) string {
	var limits []string
	if r.MaxAge > 0 {
		limits = append(limits, "the last "+r.MaxAge.String())
	}
	if r.MaxBytes > 0 {
		limits = append(limits, "at most "+sizeText(r.MaxBytes))
	}
	kept := strings.Join(limits, ", ")
	switch {
	case kept == "" && !r.Consumed:
		return "everything"
	case !r.Consumed:
		return kept
	case kept == "":
		return "what a group has not read; everything while there is no group"
	}
	return kept + ", and what a group has not read; everything while there is no group"
}

// sizeText formats a number of bytes, in the largest unit that gives at least 1.
func sizeText(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	units, size := []string{"KiB", "MiB", "GiB"}, float64(n)/(1<<10)
	for len(units) > 1 && size >= 1<<10 {
		units, size = units[1:], size/(1<<10)
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}

type streamRetainCmd struct {
	Name     string  `arg:"" help:"The stream."`
	MaxAge   seconds `placeholder:"TIME" help:"Drop messages that are older than this, such as 168h. 0: no limit."`
	MaxBytes bytes   `placeholder:"SIZE" help:"Drop the oldest messages when the stream is larger than this on disk, indexes included, such as 10GB. 0: no limit."`
	Consumed bool    `help:"Keep messages that a group has not read yet, even beyond the limits. Without limits, drop messages that all groups have read. As long as the stream has no group, nothing is dropped."`
	databaseFlags
}

// Run is called by kong.
func (c *streamRetainCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		if err := refuseQueueStream(p.ctx, pool, c.Name, "they are kept until they are purged"); err != nil {
			return err
		}
		policy := stream.Retention{MaxAge: time.Duration(c.MaxAge), MaxBytes: int64(c.MaxBytes), Consumed: c.Consumed}
		s, err := stream.Lookup(p.ctx, pool, c.Name)
		if err == nil {
			err = s.SetRetention(p.ctx, policy)
		}
		if err != nil {
			return explainStream(err)
		}
		fmt.Fprintf(p.Out, "stream %s keeps %s\n", c.Name, retentionText(policy))
		return nil
	})
}

type streamDropCmd struct {
	Name string `arg:"" help:"The stream."`
	Yes  bool   `help:"Confirm. This cannot be undone."`
	databaseFlags
}

// Run is called by kong.
func (c *streamDropCmd) Run(p *process) error {
	if !c.Yes {
		return exit(ExitUsage, "stream drop removes all messages of %q permanently: confirm with --yes", c.Name)
	}
	if err := refuseReserved("stream", c.Name); err != nil {
		return err
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		if err := refuseQueueStream(p.ctx, pool, c.Name, "remove it with tidewire queue drop"); err != nil {
			return err
		}
		return explainStream(stream.Drop(p.ctx, pool, c.Name))
	})
}

func plainTable(head ...any) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(head)
	return t
}

// rightAligned aligns columns of numbers to the right. Columns are counted from 1.
func rightAligned(t table.Writer, columns ...int) {
	var configs []table.ColumnConfig
	for _, n := range columns {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// explainStream adds to an error of package stream what to do about it.
func explainStream(err error) error {
	var explained *exitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &explained):
		return err
	case errors.Is(err, stream.ErrNotFound):
		return exit(ExitFailure, "%w; tidewire stream list shows what there is", err)
	case errors.Is(err, stream.ErrTooOld):
		return exit(ExitFailure, "%w; --from start begins with the oldest message that is kept", err)
	case errors.Is(err, stream.ErrHistoryLost):
		lost, _ := errors.AsType[*stream.HistoryLostError](err)
		return exit(ExitFailure, "%w; continue with --after %d", err, lost.Last)
	case errors.Is(err, stream.ErrPartition):
		return exit(ExitUsage, "%w: give the name of the whole stream, without the number", stream.ErrPartition)
	case errors.Is(err, stream.ErrPartitioned):
		return exit(ExitUsage, "%w: give the name of one partition, such as orders/0", err)
	case errors.Is(err, stream.ErrInvalid), errors.Is(err, stream.ErrNotKeyed):
		return exit(ExitUsage, "%w", err)
	}
	return explainDatabase(err)
}

// startFlags choose the position in a stream to begin at.
type startFlags struct {
	After *int64 `placeholder:"POSITION" help:"Begin after this position, 0 or more."`
	Since string `placeholder:"TIME" help:"Begin with the first message at or after this time: a time such as 2026-01-31T12:00:00Z, or how long ago, such as 10m."`
	From  string `enum:"start,end," default:"" help:"Begin at the start (the oldest message that is kept) or at the end of the stream."`
}

// start returns the chosen start, or otherwise if there is none.
func (f startFlags) start(now time.Time, otherwise stream.Start) (stream.Start, error) {
	given := 0
	for _, is := range []bool{f.After != nil, f.Since != "", f.From != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return otherwise, exit(ExitUsage, "--after, --since and --from exclude each other")
	case f.After != nil && *f.After < 0:
		return otherwise, exit(ExitUsage, "--after is %d: want 0 or more", *f.After)
	case f.After != nil:
		return stream.After(*f.After), nil
	case f.From == "start":
		return stream.Start{}, nil
	case f.From == "end":
		return stream.AtEnd(), nil
	case f.Since == "":
		return otherwise, nil
	}
	if ago, err := time.ParseDuration(f.Since); err == nil && ago >= 0 && ago < math.MaxInt64 {
		return stream.AtTime(now.Add(-ago)), nil
	}
	at, err := time.Parse(time.RFC3339, f.Since)
	if err != nil {
		return otherwise, exit(ExitUsage, "--since %q is not a time: want 2026-01-31T12:00:00Z, or a duration such as 10m", f.Since)
	}
	return stream.AtTime(at), nil
}
