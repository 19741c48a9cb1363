package gateway

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// needSchedules is the right to see and change schedules. To make one, the caller also needs the right to write to its target.
var needSchedules = need{"schedules", auth.Server, ""}

func scheduleRoutes() map[string]route {
	administrators := func(*http.Request) need { return needSchedules }
	return map[string]route{
		"GET /v1/schedules":                    {(*call).listSchedules, administrators},
		"GET /v1/schedules/{schedule}":         {(*call).showSchedule, administrators},
		"PUT /v1/schedules/{schedule}":         {(*call).putSchedule, administrators},
		"DELETE /v1/schedules/{schedule}":      {(*call).dropSchedule, administrators},
		"POST /v1/schedules/{schedule}/pause":  {func(c *call) { c.pauseSchedule(true) }, administrators},
		"POST /v1/schedules/{schedule}/resume": {func(c *call) { c.pauseSchedule(false) }, administrators},
	}
}

// scheduleFields are a schedule as a client writes it.
type scheduleFields struct {
	Cron          string          `json:"cron"`
	TimeZone      string          `json:"time_zone"`
	At            *time.Time      `json:"at"`
	Queue         string          `json:"queue"`
	Stream        string          `json:"stream"`
	Key           string          `json:"key"`
	Headers       json.RawMessage `json:"headers"`
	Payload       *string         `json:"payload"`
	PayloadBase64 *string         `json:"payload_base64"`
	Priority      int             `json:"priority"`
	CatchUp       string          `json:"catch_up"`
	Paused        bool            `json:"paused"`
}

// spec returns the schedule of that name.
func (f *scheduleFields) spec(name string) (s engine.ScheduleSpec, why *problem) {
	s = engine.ScheduleSpec{
		Name: name, Cron: f.Cron, TimeZone: f.TimeZone, Queue: f.Queue, Stream: f.Stream, Key: f.Key, Headers: f.Headers,
		Priority: f.Priority, CatchUp: f.CatchUp, Paused: f.Paused,
	}
	if f.At != nil {
		s.At = *f.At
	}
	switch {
	case (f.Payload == nil) == (f.PayloadBase64 == nil):
		return s, malformed("payload", "a string here, or in payload_base64")
	case f.Payload != nil:
		s.Payload = []byte(*f.Payload)
		return s, nil
	}
	var err error
	if s.Payload, err = base64.StdEncoding.DecodeString(*f.PayloadBase64); err != nil {
		return s, malformed("payload_base64", "base64, with its padding")
	}
	return s, nil
}

func (c *call) schedule() string { return c.r.PathValue("schedule") }

func (c *call) putSchedule() {
	schedules := c.api.server.cfg.Engine.Schedules
	var body scheduleFields
	if !c.served(schedules != nil) || !c.readStrict(&body) {
		return
	}
	spec, why := body.spec(c.schedule())
	if why != nil {
		c.refuseFor(why)
		return
	}
	target := need{"publish", auth.Stream, spec.Stream}
	if spec.Queue != "" {
		target = need{"enqueue", auth.Queue, spec.Queue}
	}
	if !c.permitAlso(func(caller *auth.Caller) *problem { return mayAll(c.ctx, caller, target) }) {
		return
	}
	made, err := query(c.ctx, c, func() (engine.Schedule, error) { return schedules.Put(c.ctx, spec) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.acted(actPutSchedule, c.schedule())
	c.writeSchedules(func(w *wire.Writer) { writeSchedule(w, &made) })
}

func (c *call) showSchedule() {
	schedules := c.api.server.cfg.Engine.Schedules
	if !c.served(schedules != nil) {
		return
	}
	one, err := query(c.ctx, c, func() (engine.Schedule, error) { return schedules.Get(c.ctx, c.schedule()) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.writeSchedules(func(w *wire.Writer) { writeSchedule(w, &one) })
}

// listSchedules answers with a page of schedules, sorted by name.
func (c *call) listSchedules() {
	schedules := c.api.server.cfg.Engine.Schedules
	if !c.served(schedules != nil) {
		return
	}
	limit, ok := c.number("limit", 1, 100, 50)
	if !ok {
		return
	}
	next := c.r.URL.Query().Get("after")
	if next != "" && !validName(next) {
		c.refuseFor(wrong(codeParameter, "after", "the name of a schedule"))
		return
	}
	page, err := readPage(c, func() ([]engine.Schedule, error) { return schedules.List(c.ctx, next, int(limit)) },
		func(s *engine.Schedule) int { return len(s.Payload) + len(s.Headers) + len(s.Error) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	c.writeSchedules(func(w *wire.Writer) {
		w.Open()
		w.Name("schedules")
		w.OpenList()
		for i := range page {
			w.Next()
			writeSchedule(w, &page[i])
			next = page[i].Name
		}
		w.CloseList()
		w.Name("next")
		w.Text(next)
		w.Close()
	})
}

func (c *call) dropSchedule() {
	if schedules := c.api.server.cfg.Engine.Schedules; c.served(schedules != nil) {
		c.acts(schedules.Drop(c.ctx, c.schedule()), actDropSchedule, c.schedule(), map[string]any{"schedule": c.schedule()})
	}
}

func (c *call) pauseSchedule(paused bool) {
	schedules := c.api.server.cfg.Engine.Schedules
	if !c.served(schedules != nil) {
		return
	}
	change, act := schedules.Resume, actResumeSchedule
	if paused {
		change, act = schedules.Pause, actPauseSchedule
	}
	c.acts(change(c.ctx, c.schedule()), act, c.schedule(), map[string]any{"schedule": c.schedule(), "paused": paused})
}

func (c *call) writeSchedules(write func(*wire.Writer)) {
	var w wire.Writer
	write(&w)
	c.write(w.Buf)
}

// writeSchedule writes a schedule as it can be put, and what the server knows of it.
func writeSchedule(w *wire.Writer, s *engine.Schedule) {
	w.Open()
	w.Name("schedule")
	w.Text(s.Name)
	optionalText(w, "cron", s.Cron)
	optionalText(w, "time_zone", s.TimeZone)
	optionalTime(w, "at", s.At)
	optionalText(w, "queue", s.Queue)
	optionalText(w, "stream", s.Stream)
	optionalText(w, "key", s.Key)
	if len(s.Headers) > 0 {
		w.Name("headers")
		w.JSON(s.Headers)
	}
	w.Data("payload", "payload_base64", s.Payload)
	if s.Priority != 0 {
		w.Name("priority")
		w.Int(int64(s.Priority))
	}
	optionalText(w, "catch_up", s.CatchUp)
	w.Name("paused")
	w.Bool(s.Paused)
	optionalTime(w, "due", s.Due)
	optionalTime(w, "last", s.Last)
	optionalText(w, "error", s.Error)
	w.Close()
}

func optionalTime(w *wire.Writer, name string, t time.Time) {
	if !t.IsZero() {
		w.Name(name)
		w.Time(t)
	}
}
