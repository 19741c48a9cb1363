package schedule

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // containers often have no zone data

	"github.com/robfig/cron/v3"
)

// maxText bounds names, expressions and zones, in bytes.
const maxText = 255

// longestEvery is the longest pause of @every.
const longestEvery = 366 * 24 * time.Hour

// Times computes the due times of a cron expression. Immutable.
type Times struct {
	zone *time.Location
	spec *cron.SpecSchedule // nil for @every
	// elapsed: each hour counts, also a repeated one. Otherwise the wall clock counts.
	elapsed bool
	every   time.Duration
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseTimes parses a cron expression and the IANA name of its time zone. The error is an *InvalidError.
func ParseTimes(expression, zone string) (*Times, error) {
	if strings.TrimSpace(expression) == "" || len(expression) > maxText || strings.Contains(expression, "TZ=") {
		return nil, &InvalidError{"cron", fmt.Sprintf("want an expression of 1 to %d bytes without a time zone, such as 0 3 * * *", maxText)}
	}
	t := new(Times)
	var err error
	if zone == "" || zone == "Local" || len(zone) > maxText {
		return nil, &InvalidError{"time_zone", "want an IANA name such as Europe/Berlin"}
	}
	if t.zone, err = time.LoadLocation(zone); err != nil {
		return nil, &InvalidError{"time_zone", fmt.Sprintf("there is no zone %q: want an IANA name such as Europe/Berlin", zone)}
	}
	parsed, err := parse(expression)
	if err != nil {
		return nil, &InvalidError{"cron", fmt.Sprintf("%v: want five fields (minute, hour, day of the month, month, day of the week), such as 0 3 * * *, or @every 10m", err)}
	}
	switch s := parsed.(type) {
	case cron.ConstantDelaySchedule:
		t.every = s.Delay
		// The parser makes one second of anything shorter, even of a negative pause.
		if given, err := time.ParseDuration(strings.TrimPrefix(expression, "@every ")); err != nil || given < time.Second || t.every > longestEvery {
			return nil, &InvalidError{"cron", fmt.Sprintf("@every: want 1s to %v", longestEvery)}
		}
	case *cron.SpecSchedule:
		t.spec, t.elapsed = s, s.Hour&allHours == allHours
	}
	return t, nil
}

// allHours has a bit for each hour, as in the parser's hour field.
const allHours = 1<<24 - 1

// parse turns a panic of the parser into an error.
func parse(expression string) (s cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("unreadable expression")
		}
	}()
	return parser.Parse(expression)
}

// Next returns the first due time after a time, or the zero time if there is none in five years.
func (t *Times) Next(after time.Time) time.Time {
	switch {
	case t.spec == nil:
		return after.Truncate(time.Second).Add(t.every)
	case t.elapsed:
		return t.nextElapsed(after)
	}
	return t.nextOnWall(after)
}

// nextElapsed goes through the periods in which the zone has a constant offset.
func (t *Times) nextElapsed(after time.Time) time.Time {
	for period := after; ; {
		local := period.In(t.zone)
		next := t.nextAt(after, local)
		_, end := local.ZoneBounds()
		if next.IsZero() || end.IsZero() || next.Before(end) {
			return next
		}
		period, after = end, end.Add(-1)
	}
}

// nextAt returns the next due time as if the zone always had the offset that it has at a time.
func (t *Times) nextAt(after, local time.Time) time.Time {
	name, offset := local.Zone()
	at := *t.spec
	at.Location = time.FixedZone(name, offset)
	if next := at.Next(after.In(at.Location)); !next.IsZero() {
		return next.UTC()
	}
	return time.Time{}
}

// nextOnWall goes through the due times of a wall clock that never changes, and finds when the zone's clocks show them.
func (t *Times) nextOnWall(after time.Time) time.Time {
	at := *t.spec
	at.Location = time.UTC
	for wall := wallOf(after.In(t.zone)); ; {
		if wall = at.Next(wall); wall.IsZero() {
			return time.Time{}
		}
		if due := firstShown(wall, t.zone); due.After(after) {
			return due.UTC()
		}
	}
}

// wallOf returns what a clock shows at a time, as a time in UTC.
func wallOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// firstShown returns when the clocks of a zone first show a wall time, or, if they skip it, when they do.
func firstShown(wall time.Time, zone *time.Location) time.Time {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, zone)
	start, end := guess.ZoneBounds()
	near := []time.Time{guess}
	if !start.IsZero() {
		near = append(near, start.Add(-1))
	}
	if !end.IsZero() {
		near = append(near, end)
	}
	var first, skipped time.Time
	for _, n := range near {
		_, offset := n.In(zone).Zone()
		shown := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		switch w := wallOf(shown); {
		case w.Equal(wall):
			if first.IsZero() || shown.Before(first) {
				first = shown
			}
		case w.After(wall) && skipped.IsZero():
			skipped, _ = shown.ZoneBounds()
		}
	}
	if first.IsZero() {
		return skipped
	}
	return first
}

// Latest returns the last due time that is not after now. due is a due time before that.
func (t *Times) Latest(due, now time.Time) time.Time {
	if t.spec == nil {
		return due.Add(now.Sub(due) / t.every * t.every)
	}
	// The first look is at the last minute, and each further one goes back four times as far.
	for back := time.Minute; ; back *= 4 {
		from := now.Add(-back)
		if !from.After(due) || back > longestEvery {
			from = due
		}
		next := t.Next(from)
		if next.IsZero() || next.After(now) {
			if from.Equal(due) {
				return due
			}
			continue
		}
		for {
			after := t.Next(next)
			if after.IsZero() || after.After(now) {
				return next
			}
			next = after
		}
	}
}
