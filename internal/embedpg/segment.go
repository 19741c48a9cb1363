package embedpg

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// segmentPatience is how long killed processes may take to end; segmentPoll is how often that is checked.
const (
	segmentPatience = 5 * time.Second
	segmentPoll     = 5 * time.Millisecond
)

// dropSegment removes the shared memory segment of a server that was killed. PostgreSQL has a small System V segment, by which a
// second server detects the first. A clean stop or the next start removes it. If the data directory is removed after a kill, the
// segment stays, and a machine has room for some 4,000.
func (l layout) dropSegment() error {
	p, ok, err := l.readPID()
	if err != nil || !ok || exists(p.pid) {
		return err
	}
	id, ok := p.segment()
	if !ok {
		return nil
	}
	var info unix.SysvShmDesc
	for deadline := time.Now().Add(segmentPatience); ; time.Sleep(segmentPoll) {
		if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &info); err != nil {
			return nil // gone already
		}
		if info.Nattch == 0 {
			break
		}
		if time.Now().After(deadline) {
			return nil // by now another server uses it
		}
	}
	unix.SysvShmCtl(id, unix.IPC_RMID, nil) // this may fail for lack of rights: then the next start does it
	return nil
}

// segment returns the number of the segment, which follows its key in the seventh line.
func (p pidFile) segment() (id int, ok bool) {
	lines := strings.Split(p.rest, "\n") // from the second line on
	if len(lines) < 6 {
		return 0, false
	}
	fields := strings.Fields(lines[5])
	if len(fields) != 2 {
		return 0, false
	}
	id, err := strconv.Atoi(fields[1])
	return id, err == nil
}
