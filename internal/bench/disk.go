package bench

import (
	"context"
	"os"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
)

// probeTime is how long SyncLatency writes.
const probeTime = 300 * time.Millisecond

// SyncLatency measures how long the disk of a directory takes to make 8 KiB at
// the end of a file durable: the lower bound for a commit.
func SyncLatency(dir string) (*Histogram, error) {
	f, err := os.CreateTemp(dir, "tidewire-sync-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h, page := NewHistogram(), make([]byte, 8<<10)
	for begun := time.Now(); time.Since(begun) < probeTime; {
		if _, err := f.Write(page); err != nil {
			return nil, err
		}
		at := time.Now()
		if err := syncData(f); err != nil {
			return nil, err
		}
		h.Record(time.Since(at))
	}
	return h, nil
}

// cpuTimes returns the CPU seconds of all CPUs of this machine, and those that
// the hypervisor gave to other machines (steal). Both are 0 if the system does
// not report them.
func cpuTimes(ctx context.Context) (total, stolen float64) {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) == 0 {
		return 0, 0
	}
	t := times[0]
	return t.User + t.System + t.Idle + t.Nice + t.Iowait + t.Irq + t.Softirq + t.Steal, t.Steal
}
