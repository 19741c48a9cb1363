package gateway

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/wire"
)

// deadAct is what can be done with dead letters.
type deadAct struct {
	name, act string
	at        func(engine.Queues, *call, []int64) (int64, error)
	step      func(engine.Queues, string, engine.DeadFilter, int) jobAct
}

var (
	redriveDead = deadAct{"redrive", actRedrive,
		func(q engine.Queues, c *call, at []int64) (int64, error) { return q.Redrive(c.ctx, c.queue(), at) },
		func(q engine.Queues, name string, f engine.DeadFilter, limit int) jobAct {
			return stepping(q.RedriveStep, name, f, limit)
		}}
	purgeDead = deadAct{"purge", actPurgeDead,
		func(q engine.Queues, c *call, at []int64) (int64, error) { return q.PurgeDead(c.ctx, c.queue(), at) },
		func(q engine.Queues, name string, f engine.DeadFilter, limit int) jobAct {
			return stepping(q.PurgeDeadStep, name, f, limit)
		}}
)

// filterFields select dead letters.
type filterFields struct {
	Key         string  `json:"key"`
	Reason      string  `json:"reason"`
	MinAttempts int     `json:"min_attempts"`
	MaxAttempts int     `json:"max_attempts"`
	Since       *moment `json:"since"`
	Until       *moment `json:"until"`
}

func (f filterFields) filter() engine.DeadFilter {
	filter := engine.DeadFilter{Key: f.Key, Reason: f.Reason, MinAttempts: f.MinAttempts, MaxAttempts: f.MaxAttempts}
	if f.Since != nil {
		filter.Since = f.Since.Time
	}
	if f.Until != nil {
		filter.Before = f.Until.Time
	}
	return filter
}

// deadFilter reads the filter of the URL, or refuses the call.
func (c *call) deadFilter() (f engine.DeadFilter, ok bool) {
	parameters := c.r.URL.Query()
	f.Key, f.Reason = parameters.Get("key"), parameters.Get("reason")
	least, ok := c.number("min_attempts", 0, maxAttempts, 0)
	if !ok {
		return f, false
	}
	most, ok := c.number("max_attempts", 0, maxAttempts, 0)
	if !ok {
		return f, false
	}
	f.MinAttempts, f.MaxAttempts = int(least), int(most)
	if f.Since, ok = c.time("since"); !ok {
		return f, false
	}
	f.Before, ok = c.time("until")
	return f, ok
}

// time returns a parameter of the query that is a time, zero if it is missing, or refuses the call.
func (c *call) time(name string) (t time.Time, ok bool) {
	text := c.r.URL.Query().Get(name)
	if text == "" {
		return t, true
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		c.refuseFor(wrong(codeParameter, name, wantedTime))
	}
	return t, err == nil
}

// listDead answers with a page of dead letters.
func (c *call) listDead() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) {
		return
	}
	filter, ok := c.deadFilter()
	if !ok {
		return
	}
	after, ok := c.number("after", 0, math.MaxInt64, 0)
	if !ok {
		return
	}
	limit, ok := c.number("limit", 1, engine.MaxDeadStep, 100)
	if !ok {
		return
	}
	next := int64(0)
	page, err := readPage(c, func() (letters []engine.DeadLetter, err error) {
		letters, next, err = admin.DeadLetters(c.ctx, c.queue(), filter, after, int(limit))
		return letters, err
	}, func(l *engine.DeadLetter) int { return messageBytes(&l.Message) + len(l.Reason) })
	if err != nil {
		c.fail(err, codeUnavailable)
		return
	}
	var w wire.Writer
	w.Open()
	w.Name("dead")
	w.OpenList()
	for i := range page {
		w.Next()
		writeDead(&w, &page[i])
	}
	w.CloseList()
	if next != 0 {
		w.Name("next")
		w.Int(next)
	}
	w.Close()
	c.write(w.Buf)
}

func writeDead(w *wire.Writer, l *engine.DeadLetter) {
	w.Open()
	writeBody(w, &l.Message)
	w.Name("attempts")
	w.Int(int64(l.Attempts))
	optionalText(w, "reason", l.Reason)
	if !l.Died.IsZero() {
		w.Name("died")
		w.Time(l.Died)
	}
	w.Close()
}

// changeDead redrives or purges dead letters: those at some positions, or all that a filter selects, which is a job.
func (c *call) changeDead(act deadAct) {
	admin := c.api.server.cfg.Engine.Queues
	var body struct {
		Positions []int64       `json:"positions"`
		Filter    *filterFields `json:"filter"`
		All       bool          `json:"all"`
		PerSecond *int          `json:"per_second"`
	}
	if !c.served(admin != nil) || !c.readStrict(&body) {
		return
	}
	given := 0
	for _, is := range []bool{body.Positions != nil, body.Filter != nil, body.All} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		c.refuseFor(malformed("positions", "one of positions, filter, and all (true)"))
		return
	case body.Filter != nil && *body.Filter == (filterFields{}): // it may be a mistake, and would take all of them
		c.refuseFor(malformed("filter", "at least one field that selects, or all (true) in place of filter"))
		return
	case body.Positions != nil && (len(body.Positions) == 0 || len(body.Positions) > engine.MaxDeadStep):
		c.refuseFor(malformed("positions", fmt.Sprintf("1 to %d positions", engine.MaxDeadStep)))
		return
	case body.PerSecond != nil && (body.Positions != nil || *body.PerSecond < 1 || *body.PerSecond > maxPerSecond):
		c.refuseFor(wrong(engine.CodeInvalid, "per_second", between(1, maxPerSecond)+", beside filter or all"))
		return
	case body.Positions != nil:
		n, err := act.at(admin, c, body.Positions)
		c.acts(err, act.act, c.queue(), counted{n})
		return
	}
	filter := engine.DeadFilter{}
	if body.Filter != nil {
		filter = body.Filter.filter()
	}
	if _, err := admin.Options(c.ctx, c.queue()); err != nil { // a job cannot say that there is no queue
		c.fail(err, codeUnavailable)
		return
	}
	perSecond := 0
	if body.PerSecond != nil {
		perSecond = *body.PerSecond
	}
	started, ok := c.api.jobs.start(&job{Queue: c.queue(), Act: act.name, PerSecond: perSecond, over: c.api.server.audit.jobEnded}, c.whileAdmin(act.step(admin, c.queue(), filter, stepOf(perSecond))))
	if !ok {
		c.refuse(codeTooManyJobs)
		return
	}
	c.acted(act.act, c.queue())
	c.answer(started)
}

// whileAdmin is a step that is done only while the caller has its right to administer the queue.
func (c *call) whileAdmin(step jobAct) jobAct {
	server, caller, needed := c.api.server, c.caller, need{"admin", auth.Queue, c.queue()}
	return func(ctx context.Context, after int64) (done stepped, err error) {
		if caller, done.why = server.mayGoOn(ctx, caller, needed); done.why != "" {
			return done, nil
		}
		return step(ctx, after)
	}
}

// stepping is a step of a job of this queue and filter.
func stepping(change changeStep, queue string, f engine.DeadFilter, limit int) jobAct {
	return func(ctx context.Context, after int64) (stepped, error) {
		did, err := change(ctx, queue, f, after, limit)
		return stepped{changed: did.Changed, next: did.Next, done: err == nil && did.Next == 0}, err
	}
}

type changeStep func(ctx context.Context, queue string, f engine.DeadFilter, after int64, limit int) (engine.DeadStep, error)

// replaceDead removes a dead letter and enqueues a message, both or neither.
func (c *call) replaceDead() {
	admin := c.api.server.cfg.Engine.Queues
	if !c.served(admin != nil) || !c.permitAlso(func(caller *auth.Caller) *problem {
		return mayAll(c.ctx, caller, need{"enqueue", auth.Queue, c.queue()})
	}) {
		return
	}
	position, err := strconv.ParseInt(c.r.PathValue("position"), 10, 64)
	if err != nil || position < 1 {
		c.refuseFor(wrong(codeParameter, "position", "that of a dead letter"))
		return
	}
	fields := wire.Of(wire.FieldPayload, wire.FieldPayloadBase64, wire.FieldKey, wire.FieldHeaders, wire.FieldPriority, wire.FieldDelayMS)
	messages, ok := c.messages(fields)
	if !ok {
		return
	}
	opts, why := c.body.enqueueOptions(c.caller)
	if why != nil {
		c.refuseFor(why)
		return
	}
	replaced, err := admin.ReplaceDead(c.ctx, c.queue(), position, messages[0], opts)
	switch {
	case err != nil:
		c.fail(err, codeNotStored)
	case !replaced:
		c.refuseFor(&problem{code: engine.CodeNotFound, text: "there is no dead letter at this position: it was redriven or purged. Nothing was enqueued"})
	default:
		c.acts(nil, actReplaceDead, fmt.Sprint(c.queue(), " ", position), struct{}{})
	}
}

// owns reports whether a job is of the queue or stream of the path, and the caller may know where it writes: it has started the job, or a rule grants it
// something there. The SQL function on rights is not asked: this is also for lists.
func (c *call) owns(one *job) bool {
	if one.Queue != c.queue() || one.Stream != c.stream() {
		return false
	}
	return c.caller == nil || one.replayed == nil || one.by != "" && one.by == c.caller.User || c.caller.MaySee(one.target().kind, one.target().name)
}

func (c *call) listJobs() { c.answer(map[string]any{"jobs": c.api.jobs.list(c.owns)}) }

func (c *call) showJob() {
	if one, ok := c.job(false); ok {
		c.answer(one)
	}
}

// stopJob stops a job. That of a replay needs the rights with which it was started.
func (c *call) stopJob() {
	one, ok := c.job(false)
	if !ok || one.replayed != nil && !c.permitAlso(func(caller *auth.Caller) *problem { return mayAll(c.ctx, caller, one.target()) }) {
		return
	}
	if one, ok = c.job(true); ok {
		act, of := actStopJob, c.queue()
		if one.replayed != nil {
			act, of = actStopReplay, c.stream()
		}
		c.acted(act, of)
		c.answer(one)
	}
}

// job returns the job of the path, and stops it if asked to, or refuses the call.
func (c *call) job(stop bool) (job, bool) {
	one, ok := c.api.jobs.find(c.owns, c.r.PathValue("job"), stop)
	if !ok {
		c.refuseFor(&problem{code: engine.CodeNotFound, text: "this server has no such job: servers forget jobs when they stop, and the oldest of more than 100"})
	}
	return one, ok
}
