package bench

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// Role is the part that a process has in a run.
type Role int

// The roles.
const (
	Server Role = iota
	Postgres
	Generator
	roles
)

// Usage is what the processes of one role used while a Sampler ran.
type Usage struct {
	CPUSeconds float64
	// PeakRSSBytes is the largest resident memory seen of all processes of the
	// role together; not for Postgres, whose processes share theirs.
	PeakRSSBytes uint64
}

// Sample is what the processes of one role used up to one moment.
type Sample struct {
	At         time.Time
	CPUSeconds float64 // since the Sampler's start
	RSSBytes   uint64  // at this moment
}

// Samples is a series of them, in the order of time.
type Samples []Sample

// CPUSeconds is what was used between two moments; between samples it counts
// as used evenly.
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

// samplePeriod is how often processes are looked at, and familyEvery how many of
// these periods lie between two looks at PostgreSQL's, which are found among all
// of the machine's: that takes milliseconds. One that begins and ends in between is
// missed: short-lived ones use little.
const (
	samplePeriod = 100 * time.Millisecond
	familyEvery  = 10
)

// Sampler measures CPU time and memory of every process of a run.
type Sampler struct {
	roots map[Role][]int32
	stop  context.CancelFunc
	done  sync.WaitGroup

	// Of the sampling goroutine until it ends.
	first, last map[int32]float64 // CPU seconds by pid
	role        map[int32]Role
	peak        [roles]uint64
	series      [roles]Samples

	mu     sync.Mutex // guards the field below
	latest map[Role]Sample
}

// StartSampler begins to measure this process and the generators as the
// generator, the process server alone, and postgres with all its children. A pid
// of 0 is nobody.
func StartSampler(ctx context.Context, server, postgres int, generators ...int) *Sampler {
	ctx, stop := context.WithCancel(ctx)
	load := []int32{int32(os.Getpid())}
	for _, pid := range generators {
		load = append(load, int32(pid))
	}
	s := &Sampler{
		roots: map[Role][]int32{Server: {int32(server)}, Postgres: {int32(postgres)}, Generator: load},
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

// Latest is how each role that runs was seen last, while it is measured. A nil
// Sampler has seen nobody.
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

// sample looks at each process, PostgreSQL's only if asked to. What was running at
// the start counts from there; what began later counts from 0.
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
			if role == Postgres { // what all share counts once
				own, shared := ownMemory(p)
				now.RSSBytes += own
				mostShared = max(mostShared, shared)
			} else if m, err := p.MemoryInfo(); err == nil {
				now.RSSBytes += m.RSS
				peak += max(m.RSS, m.HWM) // the peak, where the system keeps it
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

// processes returns those that run, with their children if asked for.
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

// PostmasterPID returns the pid of the parent of a backend that runs on this
// machine, or 0.
func PostmasterPID(backend int) int {
	p, err := process.NewProcess(int32(backend))
	if err != nil {
		return 0
	}
	name, err := p.Name()
	if err != nil || name != "postgres" {
		return 0 // on another machine: the pid is somebody else's
	}
	parent, err := p.Ppid()
	if err != nil {
		return 0
	}
	return int(parent)
}
