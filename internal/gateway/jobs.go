package gateway

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

const (
	// maxJobs is how many jobs of a server run at a time, and maxKeptJobs how many it remembers.
	maxJobs     = 4
	maxKeptJobs = 100
	// jobStep is how many dead letters one step of a job changes.
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

// job redrives or purges the dead letters of a queue that a filter selects, step by step. It lives in the memory of its server: when that
// ends, the steps that were done stay done, and the same job can be started again.
type job struct {
	ID      string `json:"job"`
	Queue   string `json:"queue"`
	Act     string `json:"act"` // redrive or purge
	State   string `json:"state"`
	Changed int64  `json:"changed"` // dead letters so far
	// PerSecond is how many it changes in a second at most; 0: no limit.
	PerSecond int       `json:"per_second,omitempty"`
	After     int64     `json:"after"` // the position up to which it has looked
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended,omitzero"`
	Error     code      `json:"error,omitempty"`

	stop context.CancelFunc
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

// deadStep changes some dead letters after a position, at most limit.
type deadStep func(ctx context.Context, after int64, limit int) (engine.DeadStep, error)

// start starts a job, or returns false if there are too many.
func (j *jobs) start(queue, act string, perSecond int, next deadStep) (job, bool) {
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
	one := &job{ID: rand.Text()[:16], Queue: queue, Act: act, State: jobRunning, PerSecond: perSecond, Started: time.Now().UTC(), stop: stop}
	if len(j.all) >= maxKeptJobs {
		oldest := slices.IndexFunc(j.all, func(one *job) bool { return one.State != jobRunning })
		j.all = slices.Delete(j.all, oldest, oldest+1)
	}
	j.all = append(j.all, one)
	j.running.Go(func() { j.run(ctx, one, next) })
	return *one, true
}

func (j *jobs) run(ctx context.Context, one *job, next deadStep) {
	defer one.stop()
	after, limit := int64(0), jobStep
	if one.PerSecond > 0 {
		limit = min(limit, max(1, one.PerSecond/4)) // a fourth of a second's share at a time
	}
	due := time.Now()
	for {
		done, err := next(ctx, after, limit)
		after = done.Next
		if j.note(ctx, one, done, err) {
			return
		}
		if one.PerSecond > 0 {
			if now := time.Now(); due.Before(now) {
				due = now
			}
			due = due.Add(time.Duration(done.Changed) * time.Second / time.Duration(one.PerSecond))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done(): // the next step says so
			}
		}
	}
}

// note takes note of a step, and reports whether it was the last.
func (j *jobs) note(ctx context.Context, one *job, done engine.DeadStep, err error) (last bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	one.Changed += done.Changed
	switch {
	case err != nil && ctx.Err() == nil:
		one.State, one.Error = jobFailed, codeOf(err, codeUnavailable)
	case ctx.Err() != nil:
		one.State = jobStopped
	case done.Next == 0:
		one.State = jobDone
	default:
		one.After = done.Next
		return false
	}
	one.Ended = time.Now().UTC()
	return true
}

// of returns the jobs of a queue, oldest first.
func (j *jobs) of(queue string) []job {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := []job{}
	for _, one := range j.all {
		if one.Queue == queue {
			all = append(all, *one)
		}
	}
	return all
}

// find returns the job of a queue with that ID, and stops it if asked to.
func (j *jobs) find(queue, id string, stop bool) (job, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, one := range j.all {
		if one.Queue == queue && one.ID == id {
			if stop {
				one.stop()
			}
			return *one, true
		}
	}
	return job{}, false
}

// close stops all jobs, and waits for the step that each is in.
func (j *jobs) close() {
	j.end()
	j.running.Wait()
}
