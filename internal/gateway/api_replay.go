package gateway

import (
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
)

// replayFields are the body of a replay.
type replayFields struct {
	ToStream string  `json:"to_stream"`
	ToQueue  string  `json:"to_queue"`
	After    int64   `json:"after"`
	Until    *int64  `json:"until"`
	Key      *string `json:"key"`
	DryRun   bool    `json:"dry_run"`
	Replay   string  `json:"replay"`
}

var replayName = regexp.MustCompile(`^[A-Z2-7]{16}$`)

// replayStream starts a job that stores a part of a stream in another stream or a queue.
func (c *call) replayStream() {
	kept := c.api.server.cfg.Engine
	var body replayFields
	if !c.served(kept.Streams != nil) || !c.readStrict(&body) || !c.served(body.ToQueue == "" || kept.Queues != nil) {
		return
	}
	if why := body.wrong(); why != nil {
		c.refuseFor(why)
		return
	}
	is := replayed{Replay: body.Replay, ToStream: body.ToStream, ToQueue: body.ToQueue, DryRun: body.DryRun, Key: body.Key, Begin: body.After}
	if is.Replay == "" {
		is.Replay = rand.Text()[:16]
	}
	if !c.permitAlso(func(caller *auth.Caller) *problem { return mayAll(c.ctx, caller, is.target()) }) {
		return
	}
	why, err := query(c.ctx, c, func() (*problem, error) { return c.replayable(&is, body.Until) })
	switch {
	case err != nil:
		c.fail(err, codeUnavailable)
		return
	case why != nil:
		c.refuseFor(why)
		return
	}
	r := &replay{server: c.api.server, source: c.stream(), is: is, caller: c.caller, logged: time.Now()}
	started, ok := c.api.jobs.start(&job{Stream: c.stream(), Act: "replay", After: is.Begin, replayed: &is, over: r.ended}, r.step)
	if !ok {
		c.refuse(codeTooManyJobs)
		return
	}
	if !is.DryRun {
		c.acted(actReplay, fmt.Sprintf("%s to %s %s, replay %s, after %d until %d", c.stream(), is.target().kind, is.target().name, is.Replay, is.Begin, is.Until))
	}
	c.answer(started)
}

func (f *replayFields) wrong() *problem {
	switch {
	case (f.ToStream == "") == (f.ToQueue == ""):
		return malformed("to_stream", "one of to_stream and to_queue")
	case f.ToStream != "" && !usable(f.ToStream):
		return unusable("to_stream", f.ToStream)
	case f.ToQueue != "" && !usable(f.ToQueue):
		return unusable("to_queue", f.ToQueue)
	case f.After < 0:
		return wrong(engine.CodeInvalid, "after", "a position, 0 or more")
	case f.Until != nil && *f.Until < f.After:
		return wrong(engine.CodeInvalid, "until", "a position, not before after")
	case f.Replay != "" && !replayName.MatchString(f.Replay):
		return wrong(engine.CodeInvalid, "replay", "the replay that a job has told")
	}
	return nil
}

// replayable returns why a replay cannot be, and fills in where it ends.
func (c *call) replayable(is *replayed, until *int64) (*problem, error) {
	streams := c.api.server.cfg.Engine.Streams
	source, err := streams.Info(c.ctx, c.stream())
	if err != nil {
		return nil, err
	}
	is.Until = source.Head
	if until != nil {
		is.Until = min(*until, source.Head)
	}
	if _, err := streams.Read(c.ctx, c.stream(), is.Key, is.Begin, 1); err != nil {
		return nil, err
	}
	parts, err := c.partsOf(is)
	if errors.Is(err, engine.ErrNotFound) {
		return &problem{code: engine.CodeNotFound, text: object{stream: is.ToStream, queue: is.ToQueue}.missing()}, nil
	}
	if to := is.target().name; err == nil && (to == c.stream() || parts && isPart(c.stream(), to)) {
		return wrong(engine.CodeInvalid, "to_"+string(is.target().kind), "not where the messages are already"), nil
	}
	return nil, err
}

// partsOf reports whether the target has its messages in parts, and is an error if nothing can be stored in it.
func (c *call) partsOf(is *replayed) (bool, error) {
	if is.ToQueue != "" {
		options, err := c.api.server.cfg.Engine.Queues.Options(c.ctx, is.ToQueue)
		return options.Partitions > 0 || options.Priorities > 0, err
	}
	streams := c.api.server.cfg.Engine.Streams
	if _, err := streams.Retention(c.ctx, is.ToStream); err != nil { // the stream of a queue has none
		return false, err
	}
	info, err := streams.Info(c.ctx, is.ToStream)
	return info.Partitions > 0, err
}

// isPart reports whether a stream is a part of another, or of a queue, that has parts.
func isPart(name, of string) bool {
	number, found := strings.CutPrefix(name, of+"/")
	return found && number != "" && strings.Trim(number, "0123456789") == ""
}
