package gateway

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

const (
	// maxJobs is how many jobs of a server run at a time, and maxKeptJobs how many it remembers.
	maxJobs     = 4
	maxKeptJobs = 100
	// jobStep is how many dead letters or messages one step of a job takes.
	jobStep = 500
	// maxPerSecond is the highest limit of a job.
	maxPerSecond = 100_000
)

// The states of a job.
const (
	jobRunning = "running"
	jobDone    = "done"
	jobStopped = "stopped" // by a client, or because the server stops
	jobFailed  = "failed"
)

// job redrives or purges the dead letters of a queue that a filter selects, or replays a part of a stream, step by step. It lives in the memory
// of its server: when that ends, the steps that were done stay done, and the same job can be started again.
type job struct {
	ID      string `json:"job"`
	Queue   string `json:"queue,omitempty"`
	Stream  string `json:"stream,omitempty"`
	Act     string `json:"act"` // redrive, purge or replay
	State   string `json:"state"`
	Changed int64  `json:"changed"` // dead letters, or messages stored, so far
	// PerSecond is how many it changes in a second at most; 0: no limit.
	PerSecond int       `json:"per_second,omitempty"`
	After     int64     `json:"after"` // the position up to which it has looked
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended,omitzero"`
	Error     code      `json:"error,omitempty"`
	*replayed

	stop context.CancelFunc
	over func(as *job, err error) // nil, or called after the last step, whose error it gets
}

// copied returns a copy that nobody changes.
func (j *job) copied() job {
	one := *j
	if one.replayed != nil {
		r := *one.replayed
		one.replayed = &r
	}
	return one
}

// stepped is the result of a step of a job.
type stepped struct {
	changed int64
	next    int64 // the position up to which it has looked, 0 if it has not
	done    bool  // nothing is left
	why     code  // it may not go on
	replayedStep
}

// jobs are the jobs of a server. Safe for concurrent use.
type jobs struct {
	work    context.Context
	running sync.WaitGroup
	end     context.CancelFunc

	mu  sync.Mutex
	all []*job // oldest first
}

func newJobs() *jobs {
	j := new(jobs)
	j.work, j.end = context.WithCancel(context.Background())
	return j
}

// stepOf is how much one step of a job with a limit takes: a fourth of a second's share.
func stepOf(perSecond int) int {
	if perSecond == 0 {
		return jobStep
	}
	return min(jobStep, max(1, perSecond/4))
}

// jobAct does a part of a job, after a position.
type jobAct func(ctx context.Context, after int64) (stepped, error)

// start starts a job, or returns false if there are too many.
func (j *jobs) start(one *job, next jobAct) (job, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	active := 0
	for _, one := range j.all {
		if one.State == jobRunning {
			active++
		}
	}
	if active >= maxJobs || j.work.Err() != nil {
		return job{}, false
	}
	ctx, stop := context.WithCancel(j.work)
	one.ID, one.State, one.Started, one.stop = rand.Text()[:16], jobRunning, time.Now().UTC(), stop
	if len(j.all) >= maxKeptJobs {
		oldest := slices.IndexFunc(j.all, func(one *job) bool { return one.State != jobRunning })
		j.all = slices.Delete(j.all, oldest, oldest+1)
	}
	j.all = append(j.all, one)
	after := one.After
	j.running.Go(func() { j.run(ctx, one, after, next) })
	return one.copied(), true
}

func (j *jobs) run(ctx context.Context, one *job, after int64, next jobAct) {
	defer one.stop()
	due := time.Now()
	for {
		done, err := next(ctx, after)
		after = done.next
		if j.note(ctx, one, done, err) { // from here on nobody changes it
			if one.over != nil {
				one.over(one, err)
			}
			return
		}
		if one.PerSecond > 0 {
			if now := time.Now(); due.Before(now) {
				due = now
			}
			due = due.Add(time.Duration(done.changed) * time.Second / time.Duration(one.PerSecond))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done(): // the next step says so
			}
		}
	}
}

// note takes note of a step, and reports whether it was the last.
func (j *jobs) note(ctx context.Context, one *job, done stepped, err error) (last bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one.Changed += done.changed
	one.After = max(one.After, done.next)
	if one.replayed != nil {
		one.add(done.replayedStep)
	}
	switch {
	case err != nil && ctx.Err() == nil:
		one.State, one.Error = jobFailed, codeOf(err, codeUnavailable)
	case done.why != "":
		one.State, one.Error = jobFailed, done.why
	case done.done:
		one.State = jobDone
	case ctx.Err() != nil:
		one.State = jobStopped
	default:
		return false
	}
	one.Ended = time.Now().UTC()
	return true
}

// list returns the jobs for which of is true, oldest first.
func (j *jobs) list(of func(*job) bool) []job {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := []job{}
	for _, one := range j.all {
		if of(one) {
			all = append(all, one.copied())
		}
	}
	return all
}

// find returns the job with that ID for which of is true, and stops it if asked to.
func (j *jobs) find(of func(*job) bool, id string, stop bool) (job, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, one := range j.all {
		if one.ID == id && of(one) {
			if stop {
				one.stop()
			}
			return one.copied(), true
		}
	}
	return job{}, false
}

// close stops all jobs, and waits for the step that each is in.
func (j *jobs) close() {
	j.end()
	j.running.Wait()
}
