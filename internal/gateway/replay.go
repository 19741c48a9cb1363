package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/engine"
)

// replayLogEvery is how often a replay that runs tells the audit log how far it is.
const replayLogEvery = 10 * time.Second

// replayed is what a job has that replays a part of a stream.
type replayed struct {
	Replay   string  `json:"replay"` // the name under which its messages are stored once
	ToStream string  `json:"to_stream,omitempty"`
	ToQueue  string  `json:"to_queue,omitempty"`
	DryRun   bool    `json:"dry_run"`
	Key      *string `json:"key,omitempty"`
	Begin    int64   `json:"begin"` // it began after this position
	Until    int64   `json:"until"`
	replayedStep
}

// replayedStep is what a step, or all of them, have done.
type replayedStep struct {
	Repeated int64 `json:"repeated"` // messages that an earlier replay of that name has stored
	Bytes    int64 `json:"bytes"`    // of keys, headers and payloads
	First    *spot `json:"first,omitempty"`
	Last     *spot `json:"last,omitempty"`
}

// spot is where a message is.
type spot struct {
	Position int64     `json:"position"`
	Time     time.Time `json:"time"`
}

func (r *replayed) add(s replayedStep) {
	r.Repeated, r.Bytes = r.Repeated+s.Repeated, r.Bytes+s.Bytes
	if r.First == nil {
		r.First = s.First
	}
	if s.Last != nil {
		r.Last = s.Last
	}
}

// target is the right that it needs where it writes.
func (r *replayed) target() need {
	if r.ToQueue != "" {
		return need{"enqueue", auth.Queue, r.ToQueue}
	}
	return need{"publish", auth.Stream, r.ToStream}
}

// replay stores messages of a stream again. Each is a request of its own, whose client is the name of the replay and whose sequence is the
// position of the message: so a replay that is tried again under its name stores nothing twice.
type replay struct {
	server *Server
	source string
	is     replayed
	caller *auth.Caller // nil in open mode
	logged time.Time    // when the audit log was last told
}

// client is the name of the replay among those who publish. Clients of callers cannot have it, since theirs begin with their user.
func (r *replay) client() string {
	of := sha256.Sum256([]byte(r.source))
	return "tidewire.replay/" + r.is.Replay + "/" + hex.EncodeToString(of[:8])
}

// step replays, or counts, the next messages. In each step they are stored in order; the next one begins when all of them are.
func (r *replay) step(ctx context.Context, after int64) (done stepped, err error) {
	if done.why = r.denied(ctx); done.why != "" {
		return done, nil
	}
	page, err := r.server.cfg.Engine.Streams.Read(ctx, r.source, r.is.Key, after, jobStep)
	if err != nil {
		return done, err
	}
	if done.done = len(page) == 0; !done.done {
		done.done = page[len(page)-1].Position >= r.is.Until
	}
	for len(page) > 0 && page[len(page)-1].Position > r.is.Until {
		page = page[:len(page)-1]
	}
	stored := make([]outcome, len(page))
	if !r.is.DryRun {
		r.store(ctx, page, stored)
	}
	for i := range page {
		m := &page[i]
		if err = stored[i].err; err != nil {
			done.done = false
			break
		}
		at := &spot{m.Position, m.Time.UTC()}
		if done.First == nil {
			done.First = at
		}
		done.Last, done.next, done.Bytes = at, m.Position, done.Bytes+int64(len(m.Key)+len(m.Headers)+len(m.Payload))
		if stored[i].repeated {
			done.Repeated++
		} else {
			done.changed++
		}
	}
	if err == nil && time.Since(r.logged) >= replayLogEvery {
		r.log(max(after, done.next), jobRunning)
	}
	return done, err
}

// outcome is what became of a message.
type outcome struct {
	repeated bool
	err      error
}

// store stores messages in their order, and waits for what becomes of each, also when ctx has ended.
func (r *replay) store(ctx context.Context, page []engine.Message, stored []outcome) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	client := r.client()
	for i := range page {
		waiting.Add(1)
		as := &engine.RequestID{Client: client, Sequence: page[i].Position}
		done := func(at engine.Place, err error) {
			stored[i] = outcome{at.Duplicate, err}
			waiting.Done()
		}
		var err error
		if kept := r.server.cfg.Engine; r.is.ToQueue != "" {
			err = kept.Queues.Enqueue(ctx, r.is.ToQueue, as, page[i:i+1], engine.EnqueueOptions{}, done)
		} else {
			err = kept.Streams.Publish(ctx, r.is.ToStream, as, page[i:i+1], done)
		}
		if err != nil { // then done is not called
			waiting.Done()
			for ; i < len(page); i++ {
				stored[i].err = err
			}
			return
		}
	}
}

// denied returns why the replay may not go on: the rights of the caller may have ended since it began, but the end of its token does not count.
func (r *replay) denied(ctx context.Context) code {
	if r.caller == nil {
		return ""
	}
	policy := r.server.cfg.Auth.Policy
	if !policy.Valid(r.caller) {
		return codeInvalidToken
	}
	if !policy.Current(r.caller) {
		next, ok := policy.Renew(r.caller)
		if !ok {
			return codeUnauthenticated
		}
		r.caller = next
	}
	if why := mayAll(ctx, r.caller, need{"read", auth.Stream, r.source}, r.is.target()); why != nil {
		return why.code
	}
	return ""
}

// ended writes the end of the replay into the audit log, whatever the reason.
func (r *replay) ended(as *job, err error) {
	if r.is.DryRun {
		return
	}
	var why []any
	if as.Error != "" {
		why = append(why, "code", as.Error)
	}
	if as.State == jobFailed && err != nil {
		why = append(why, "error", err)
	}
	r.log(as.After, as.State, why...)
}

// log writes how far the replay is into the audit log, from time to time and at its end: that survives the server.
func (r *replay) log(after int64, state string, more ...any) {
	if r.is.DryRun {
		return
	}
	r.logged = time.Now()
	fields := []any{"replay", r.is.Replay, "stream", r.source, "to_stream", r.is.ToStream, "to_queue", r.is.ToQueue, "after", after, "state", state}
	r.server.audit.log.Info("replay", append(fields, more...)...)
}
