package bench

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// Role is the role of a process in a run.
type Role int

// The roles.
const (
	Server Role = iota
	Postgres
	Generator
	roles
)

// Usage is what the processes of one role used while a Sampler was running.
type Usage struct {
	CPUSeconds float64
	// PeakRSSBytes is the largest resident memory of all processes of the role
	// together. It is not set for Postgres, whose processes share memory.
	PeakRSSBytes uint64
}

// Sample is what the processes of one role had used at one moment.
type Sample struct {
	At         time.Time
	CPUSeconds float64 // since the Sampler's start
	RSSBytes   uint64  // at this moment
}

// Samples is a series of samples, in the order of time.
type Samples []Sample

// CPUSeconds returns the CPU time used between two moments. It interpolates
// between samples.
func (s Samples) CPUSeconds(from, to time.Time) float64 {
	return s.cpuAt(to) - s.cpuAt(from)
}

func (s Samples) cpuAt(t time.Time) float64 {
	for i, sample := range s {
		if sample.At.Before(t) {
			continue
		}
		if i == 0 {
			return sample.CPUSeconds
		}
		before := s[i-1]
		share := t.Sub(before.At).Seconds() / sample.At.Sub(before.At).Seconds()
		return before.CPUSeconds + share*(sample.CPUSeconds-before.CPUSeconds)
	}
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].CPUSeconds
}

// samplePeriod is the time between two samples. familyEvery is the number of
// periods between two searches for PostgreSQL's processes among all of the
// machine's, which take milliseconds. A process that begins and ends between two
// searches is missed: short-lived processes use little.
const (
	samplePeriod = 100 * time.Millisecond
	familyEvery  = 10
)

// Sampler measures CPU time and memory of every process of a run.
type Sampler struct {
	roots map[Role][]int32
	stop  context.CancelFunc
	done  sync.WaitGroup

	// Only the sampling goroutine uses these until it ends.
	first, last map[int32]float64 // CPU seconds by pid
	role        map[int32]Role
	peak        [roles]uint64
	series      [roles]Samples

	mu     sync.Mutex // guards the field below
	latest map[Role]Sample
}

// StartSampler starts to measure. This process and generators count as the
// generator, the process server as the server, and postgres with all its
// children as PostgreSQL. A pid of 0 means no process.
func StartSampler(ctx context.Context, server, postgres int, generators ...int) *Sampler {
	return SampleProcesses(ctx, []int{server}, postgres, generators...)
}

// SampleProcesses is StartSampler for several servers, which together have one role.
func SampleProcesses(ctx context.Context, servers []int, postgres int, generators ...int) *Sampler {
	ctx, stop := context.WithCancel(ctx)
	load := []int32{int32(os.Getpid())}
	for _, pid := range generators {
		load = append(load, int32(pid))
	}
	var serving []int32
	for _, pid := range servers {
		serving = append(serving, int32(pid))
	}
	s := &Sampler{
		roots: map[Role][]int32{Server: serving, Postgres: {int32(postgres)}, Generator: load},
		stop:  stop,
		first: make(map[int32]float64), last: make(map[int32]float64), role: make(map[int32]Role),
		latest: make(map[Role]Sample),
	}
	s.sample(true, true)
	s.done.Go(func() {
		tick := time.NewTicker(samplePeriod)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
				s.sample(false, n%familyEvery == 0)
			case <-ctx.Done():
				s.sample(false, true)
				return
			}
		}
	})
	return s
}

// Stop ends the measurement and returns what it found.
func (s *Sampler) Stop() map[Role]Usage {
	s.stop()
	s.done.Wait()
	var usage [roles]Usage
	for pid, seconds := range s.last {
		usage[s.role[pid]].CPUSeconds += seconds - s.first[pid]
	}
	out := make(map[Role]Usage)
	for r := range roles {
		usage[r].PeakRSSBytes = s.peak[r]
		out[r] = usage[r]
	}
	return out
}

// Latest returns the last sample of each running role during the measurement. A
// nil Sampler returns nothing.
func (s *Sampler) Latest() map[Role]Sample {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.latest)
}

// Series returns all samples of a role. Call it after Stop.
func (s *Sampler) Series(r Role) Samples { return s.series[r] }

// sample samples each process; PostgreSQL's only if family is set. For processes
// that were running at the start, CPU time counts from there; for later ones, from
// 0.
func (s *Sampler) sample(start, family bool) {
	for role, pids := range s.roots {
		if role == Postgres && !family {
			continue
		}
		running := processes(pids, role == Postgres)
		if len(running) == 0 {
			continue
		}
		var peak, mostShared uint64
		now := Sample{At: time.Now()}
		for _, p := range running {
			if t, err := p.Times(); err == nil {
				s.role[p.Pid], s.last[p.Pid] = role, t.User+t.System
				if start {
					s.first[p.Pid] = t.User + t.System
				}
				now.CPUSeconds += t.User + t.System - s.first[p.Pid]
			}
			if role == Postgres { // memory that all processes share counts once
				own, shared := ownMemory(p)
				now.RSSBytes += own
				mostShared = max(mostShared, shared)
			} else if m, err := p.MemoryInfo(); err == nil {
				now.RSSBytes += m.RSS
				peak += max(m.RSS, m.HWM) // the peak, if the system records it
			}
		}
		now.RSSBytes += mostShared
		s.mu.Lock()
		s.latest[role] = now
		s.mu.Unlock()
		if role != Postgres {
			s.peak[role] = max(s.peak[role], peak)
			s.series[role] = append(s.series[role], now)
		}
	}
}

// processes returns the running processes, with their children on request.
func processes(pids []int32, children bool) (all []*process.Process) {
	for _, pid := range pids {
		if pid == 0 {
			continue
		}
		root, err := process.NewProcess(pid)
		if err != nil {
			continue
		}
		all = append(all, root)
		if !children {
			continue
		}
		if more, err := root.Children(); err == nil {
			all = append(all, more...)
		}
	}
	return all
}

// PostmasterPID returns the pid of the parent of a backend on this machine, or
// 0.
func PostmasterPID(backend int) int {
	p, err := process.NewProcess(int32(backend))
	if err != nil {
		return 0
	}
	name, err := p.Name()
	if err != nil || name != "postgres" {
		return 0 // the backend is on another machine, and the pid belongs to another process
	}
	parent, err := p.Ppid()
	if err != nil {
		return 0
	}
	return int(parent)
}
