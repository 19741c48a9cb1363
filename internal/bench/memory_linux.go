package bench

import "github.com/shirou/gopsutil/v4/process"

// ownMemory returns the private and the shared resident memory of a process.
func ownMemory(p *process.Process) (own, shared uint64) {
	m, err := p.MemoryInfoEx()
	if err != nil {
		return 0, 0
	}
	return m.RSS - min(m.Shared, m.RSS), m.Shared
}
