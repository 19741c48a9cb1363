package schedule

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidewire/tidewire/stream"
)

// ErrNotFound: there is no schedule of that name.
var ErrNotFound = errors.New("schedule: there is no schedule of that name")

// InvalidError says what is wrong with a field of a Spec.
type InvalidError struct {
	Field   string // the name on the wire, such as time_zone
	Problem string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("schedule: %s: %s", e.Field, e.Problem) }

// CatchUp says which missed due times get a message: see the package's documentation.
type CatchUp string

// The values of CatchUp.
const (
	Latest CatchUp = "latest"
	None   CatchUp = "none"
	All    CatchUp = "all"
)

// MaxPayload is the longest payload of a schedule in bytes.
const MaxPayload = 1 << 20

// maxHeaders leaves room for the headers that a Runner adds.
const maxHeaders = stream.MaxHeaders - 4<<10

// Headers that a Runner adds to each message.
const (
	NameHeader = "tidewire_schedule"     // the name of the schedule
	DueHeader  = "tidewire_schedule_due" // the due time in RFC 3339, in UTC
)

// Spec is what a caller says about a schedule. Exactly one of Cron and At, and one of Queue and Stream, is set.
type Spec struct {
	// Name, 1 to 255 bytes of UTF-8.
	Name string
	// Cron is an expression with five fields, and TimeZone the IANA name of its zone, which defaults to UTC.
	Cron, TimeZone string
	// At is the due time of a schedule that happens once, up to the year 9999. The schedule is removed when its message is written.
	At time.Time
	// Queue or Stream gets the messages. It must exist.
	Queue, Stream string
	// Key, Headers and Payload are those of each message, within the limits of package stream; Headers up to 60 KiB, Payload up to MaxPayload.
	Key     string
	Headers json.RawMessage
	Payload []byte
	// Priority is for a queue with priorities.
	Priority int
	// CatchUp defaults to Latest.
	CatchUp CatchUp
	// Paused schedules have no due times.
	Paused bool
}

// Schedule is a stored schedule.
type Schedule struct {
	Spec
	// Due is the next due time; it is zero if the schedule is paused or its expression cannot be read. Last is the last due time that has a message, or zero.
	Due, Last time.Time
	// Error is why the last attempt failed, or empty.
	Error string
}

// validate fills in defaults and checks what needs no database. The error is an *InvalidError.
func (s *Spec) validate(now time.Time) error {
	if s.TimeZone == "" {
		s.TimeZone = "UTC"
	}
	if s.CatchUp == "" {
		s.CatchUp = Latest
	}
	switch {
	case s.Name == "" || len(s.Name) > maxText || !isText(s.Name):
		return &InvalidError{"name", fmt.Sprintf("want 1 to %d bytes of UTF-8 without NUL", maxText)}
	case (s.Cron == "") == s.At.IsZero():
		return &InvalidError{"cron", "want a cron expression, or a time in at, and not both"}
	case (s.Queue == "") == (s.Stream == ""):
		return &InvalidError{"queue", "want a queue or a stream, and not both"}
	case !isText(s.Queue):
		return &InvalidError{"queue", "want UTF-8 without NUL"}
	case !isText(s.Stream):
		return &InvalidError{"stream", "want UTF-8 without NUL"}
	case s.At.Year() > 9999 || s.At.Year() < 1:
		return &InvalidError{"at", "want a time up to the year 9999"}
	case s.CatchUp != Latest && s.CatchUp != None && s.CatchUp != All:
		return &InvalidError{"catch_up", "want latest, none or all"}
	case len(s.Key) > stream.MaxKey || !isText(s.Key):
		return &InvalidError{"key", fmt.Sprintf("want at most %d bytes of UTF-8 without NUL", stream.MaxKey)}
	case len(s.Payload) > MaxPayload:
		return &InvalidError{"payload", fmt.Sprintf("%d bytes: want at most %d", len(s.Payload), MaxPayload)}
	case len(s.Headers) > maxHeaders:
		return &InvalidError{"headers", fmt.Sprintf("%d bytes: want at most %d", len(s.Headers), maxHeaders)}
	case s.Priority < 0 || s.Priority > 1<<30:
		return &InvalidError{"priority", "want 0, or less than the number of the queue's priorities"}
	}
	var object map[string]json.RawMessage
	if len(s.Headers) > 0 && (json.Unmarshal(s.Headers, &object) != nil || object == nil) {
		return &InvalidError{"headers", "want a JSON object"}
	}
	if s.Cron == "" {
		return nil
	}
	times, err := ParseTimes(s.Cron, s.TimeZone)
	if err != nil {
		return err
	}
	if times.Next(now).IsZero() {
		return &InvalidError{"cron", "has no due time in the next five years"}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
