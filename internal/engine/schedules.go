package engine

import (
	"context"
	"encoding/json"
	"time"
)

// ScheduleSpec is what a client says about a schedule: messages at times. Exactly one of Cron and At, and one of Queue and Stream, is set.
type ScheduleSpec struct {
	Name string
	// Cron is an expression with five fields, and TimeZone an IANA name; empty means UTC.
	Cron, TimeZone string
	// At is the time of a schedule that happens once, and is removed then.
	At            time.Time
	Queue, Stream string
	// Key, Headers and Payload are those of each message.
	Key      string
	Headers  json.RawMessage
	Payload  []byte
	Priority int    // for a queue with priorities
	CatchUp  string // which missed due times get a message: latest (also if empty), none or all
	Paused   bool
}

// Schedule is a stored schedule.
type Schedule struct {
	ScheduleSpec
	// Due is the next due time, or zero, and Last the last one that has a message, or zero.
	Due, Last time.Time
	// Error is why the last attempt failed, or empty.
	Error string
}

// Schedules enqueue or publish messages at times, each due time once over all servers. A ctx bounds only the call it is passed to. Names are those of the
// client: the engine does not check which queues and streams a client may write to.
type Schedules interface {
	// Put creates a schedule, or replaces the one of its name. If its times are the same as before, a due time that has no message yet stays due.
	// Errors are FieldErrors, also if there is no such queue or stream.
	Put(ctx context.Context, spec ScheduleSpec) (Schedule, error)
	Get(ctx context.Context, name string) (Schedule, error)
	// List returns the schedules whose names are after a name, in the order of names, at most limit.
	List(ctx context.Context, after string, limit int) ([]Schedule, error)
	Drop(ctx context.Context, name string) error
	// Pause stops a schedule: no message of it is stored after Pause returns. Due times during a pause have no messages.
	Pause(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
}
