package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a kernel timer that is read as a file: a sleeping system call would
// occupy one of the few threads that run goroutines.
type alarm struct{ file *os.File }

func newAlarm() alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return alarm{}
	}
	return alarm{os.NewFile(uintptr(fd), "timer")}
}

func (a alarm) sleep(d time.Duration) {
	if a.file == nil {
		time.Sleep(d)
		return
	}
	conn, err := a.file.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) {
			unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}, nil)
		})
	}
	if err != nil {
		return // the timer is closed
	}
	var expirations [8]byte
	a.file.Read(expirations[:]) // an error means that the timer was closed
}

func (a alarm) close() {
	if a.file != nil {
		a.file.Close()
	}
}
