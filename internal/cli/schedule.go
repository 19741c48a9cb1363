package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tidewire/tidewire/internal/schedule"
)

// scheduleCmd has the commands for schedules.
type scheduleCmd struct {
	Create scheduleCreateCmd `cmd:"" help:"Create a schedule, or replace the one of that name. A running server writes its messages."`
	List   scheduleListCmd   `cmd:"" help:"List the schedules."`
	Next   scheduleNextCmd   `cmd:"" help:"Print the next due times, of a schedule or of a cron expression."`
	Pause  schedulePauseCmd  `cmd:"" help:"Stop a schedule until resume. Due times during the pause have no messages."`
	Resume scheduleResumeCmd `cmd:"" help:"Start a schedule again, after pause."`
	Drop   scheduleDropCmd   `cmd:"" help:"Remove a schedule."`
}

type scheduleCreateCmd struct {
	Name     string            `arg:"" help:"Name of the schedule."`
	Cron     string            `placeholder:"'EXPR'" help:"When messages are due: minute, hour, day of the month, month, day of the week, for example '0 3 * * *'; or @hourly, @daily, @weekly, @monthly, @yearly, '@every 10m'."`
	TimeZone string            `default:"UTC" placeholder:"ZONE" help:"IANA time zone of --cron, for example Europe/Berlin."`
	At       string            `placeholder:"TIME" help:"In place of --cron: the time of one message, in RFC 3339, for example 2026-12-24T18:00:00+01:00."`
	Queue    string            `help:"Queue that gets the messages."`
	Stream   string            `help:"In place of --queue: stream that gets the messages."`
	Payload  string            `help:"Payload of each message. - reads it from the standard input."`
	Key      string            `help:"Key of each message."`
	Header   map[string]string `placeholder:"NAME=VALUE" help:"A header. Give the flag again for more headers."`
	Priority int               `placeholder:"N" help:"Priority, in a queue with priorities."`
	CatchUp  string            `default:"latest" placeholder:"latest|none|all" help:"Which due times get a message that no server was there for: the latest one, none, or all of the last 24 hours."`
	Paused   bool              `help:"Create it paused."`
	databaseFlags
}

// Run is called by kong.
func (c *scheduleCreateCmd) Run(p *process) error {
	spec := schedule.Spec{
		Name: c.Name, Cron: c.Cron, TimeZone: c.TimeZone, Queue: c.Queue, Stream: c.Stream, Key: c.Key,
		Payload: []byte(c.Payload), Priority: c.Priority, CatchUp: schedule.CatchUp(c.CatchUp), Paused: c.Paused,
	}
	var err error
	if c.At != "" {
		if spec.At, err = time.Parse(time.RFC3339, c.At); err != nil {
			return exit(ExitUsage, "--at %q: want a time in RFC 3339, such as 2026-12-24T18:00:00+01:00", c.At)
		}
	}
	if c.Payload == "-" {
		if spec.Payload, err = io.ReadAll(io.LimitReader(p.In, schedule.MaxPayload+1)); err != nil {
			return fmt.Errorf("read the payload: %w", err)
		}
	}
	if len(c.Header) > 0 {
		if spec.Headers, err = json.Marshal(c.Header); err != nil {
			return err
		}
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		stored, err := schedule.Put(p.ctx, pool, spec)
		if err != nil {
			return explainSchedule(err)
		}
		fmt.Fprintf(p.Out, "schedule %s: next due %s\n", stored.Name, dueText(stored.Due))
		return nil
	})
}

// dueText returns a time for people, in UTC.
func dueText(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return day(&t)
}

type scheduleListCmd struct{ databaseFlags }

// schedulePage is how many schedules one query reads.
const schedulePage = 500

// Run is called by kong.
func (c *scheduleListCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		t := plainTable("schedule", "times", "target", "state", "last due", "next due", "error")
		for after := ""; ; {
			page, err := schedule.List(p.ctx, pool, after, schedulePage)
			if err != nil {
				return explainSchedule(err)
			}
			for i := range page {
				s := &page[i]
				times, to, state := s.Cron+" "+s.TimeZone, "queue "+s.Queue, "active"
				if s.Cron == "" {
					times = "once"
				}
				if s.Stream != "" {
					to = "stream " + s.Stream
				}
				if s.Paused {
					state = "paused"
				}
				t.AppendRow(table.Row{s.Name, times, to, state, dueText(s.Last), dueText(s.Due), s.Error})
				after = s.Name
			}
			if len(page) < schedulePage {
				break
			}
		}
		fmt.Fprintln(p.Out, t.Render())
		return nil
	})
}

type scheduleNextCmd struct {
	Name     string `arg:"" optional:"" help:"The schedule. Leave it out with --cron."`
	Cron     string `placeholder:"'EXPR'" help:"Print the due times of this expression. Needs no database."`
	TimeZone string `default:"UTC" placeholder:"ZONE" help:"IANA time zone of --cron."`
	Count    int    `short:"n" default:"5" help:"How many due times to print."`
	databaseFlags
}

// Run is called by kong.
func (c *scheduleNextCmd) Run(p *process) error {
	if (c.Name == "") == (c.Cron == "") {
		return exit(ExitUsage, "want the name of a schedule, or --cron, and not both")
	}
	if c.Count < 1 || c.Count > 1000 {
		return exit(ExitUsage, "--count is %d: want 1 to 1000", c.Count)
	}
	if c.Cron != "" {
		return c.print(p, schedule.Spec{Cron: c.Cron, TimeZone: c.TimeZone}, time.Time{})
	}
	return c.withPool(p, func(pool *pgxpool.Pool) error {
		s, err := schedule.Get(p.ctx, pool, c.Name)
		if err != nil {
			return explainSchedule(err)
		}
		switch {
		case s.Paused:
			return exit(ExitFailure, "schedule %q is paused: start it with tidewire schedule resume", c.Name)
		case s.Cron == "":
			_, err = fmt.Fprintln(p.Out, s.Due.Format(time.RFC3339))
			return err
		}
		return c.print(p, s.Spec, s.Due)
	})
}

// print prints due times in the zone of the schedule; the first one is known, or comes after now.
func (c *scheduleNextCmd) print(p *process, s schedule.Spec, first time.Time) error {
	times, err := schedule.ParseTimes(s.Cron, s.TimeZone)
	if err != nil {
		return explainSchedule(err)
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return err
	}
	if first.IsZero() {
		first = times.Next(time.Now())
	}
	for range c.Count {
		if first.IsZero() {
			return exit(ExitFailure, "no further due time in the next five years")
		}
		fmt.Fprintln(p.Out, first.In(zone).Format(time.RFC3339))
		first = times.Next(first)
	}
	return nil
}

// scheduleArg names a schedule.
type scheduleArg struct {
	Name string `arg:"" help:"The schedule."`
	databaseFlags
}

type schedulePauseCmd struct{ scheduleArg }

// Run is called by kong.
func (c *schedulePauseCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error { return explainSchedule(schedule.Pause(p.ctx, pool, c.Name)) })
}

type scheduleResumeCmd struct{ scheduleArg }

// Run is called by kong.
func (c *scheduleResumeCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error { return explainSchedule(schedule.Resume(p.ctx, pool, c.Name)) })
}

type scheduleDropCmd struct{ scheduleArg }

// Run is called by kong.
func (c *scheduleDropCmd) Run(p *process) error {
	return c.withPool(p, func(pool *pgxpool.Pool) error { return explainSchedule(schedule.Drop(p.ctx, pool, c.Name)) })
}

// explainSchedule adds to an error of package schedule what to do about it.
func explainSchedule(err error) error {
	invalid, isInvalid := errors.AsType[*schedule.InvalidError](err)
	switch {
	case isInvalid:
		return exit(ExitUsage, "%w", invalid)
	case errors.Is(err, schedule.ErrNotFound):
		return exit(ExitFailure, "%w; tidewire schedule list shows what there is", err)
	}
	return explainDatabase(err)
}
