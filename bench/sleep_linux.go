package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleepPrecisely has the system wake the thread.
func sleepPrecisely(d time.Duration) {
	spec := unix.NsecToTimespec(d.Nanoseconds())
	unix.Nanosleep(&spec, nil) // a signal ends it early, which is as good
}
