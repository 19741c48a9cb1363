package bench

import "github.com/shirou/gopsutil/v4/process"

// ownMemory returns the resident memory that a process has for itself, and that
// it shares.
func ownMemory(p *process.Process) (own, shared uint64) {
	m, err := p.MemoryInfoEx()
	if err != nil {
		return 0, 0
	}
	return m.RSS - min(m.Shared, m.RSS), m.Shared
}
