package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is a timer of the kernel's that is waited for as for a file: a sleeping
// system call would keep one of the few threads that run goroutines.
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
		return // it is closed
	}
	var expirations [8]byte
	a.file.Read(expirations[:]) // an error is that it was closed
}

func (a alarm) close() {
	if a.file != nil {
		a.file.Close()
	}
}
