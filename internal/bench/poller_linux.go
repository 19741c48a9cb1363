package bench

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller waits for many sockets at once: epoll, level-triggered.
type poller struct {
	fd     int
	unread unread
	events []unix.EpollEvent
}

// event says what a socket is ready for. A broken socket is ready for both.
type event struct {
	fd                 int
	readable, writable bool
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &poller{fd: fd, events: make([]unix.EpollEvent, 256)}, nil
}

func (p *poller) close() { unix.Close(p.fd) }

func (p *poller) add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd, false) }

// wantWrite starts or stops reporting that fd is writable.
func (p *poller) wantWrite(fd int, want bool) error { return p.control(unix.EPOLL_CTL_MOD, fd, want) }

func (p *poller) control(op, fd int, write bool) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
	if write {
		ev.Events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(p.fd, op, fd, &ev); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// wait waits for at most timeout, and calls ready for each socket that is
// ready.
func (p *poller) wait(timeout time.Duration, ready func(event)) error {
	unread := p.unread.take()
	if len(unread) > 0 {
		timeout = 0
	}
	n, err := p.waitPrecisely(timeout)
	if err == unix.ENOSYS { // before Linux 5.11
		n, err = unix.EpollWait(p.fd, p.events, int((timeout+time.Millisecond-1)/time.Millisecond))
	}
	if err == unix.EINTR {
		n, err = 0, nil
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	const broken = unix.EPOLLERR | unix.EPOLLHUP
	for _, ev := range p.events[:n] {
		ready(event{
			fd:       int(ev.Fd),
			readable: ev.Events&(unix.EPOLLIN|broken) != 0,
			writable: ev.Events&(unix.EPOLLOUT|broken) != 0,
		})
	}
	for _, fd := range unread {
		ready(event{fd: fd, readable: true})
	}
	return nil
}

// waitPrecisely is epoll_wait with a timeout in nanoseconds instead of
// milliseconds, so that messages are sent on time without a busy wait.
func (p *poller) waitPrecisely(timeout time.Duration) (int, error) {
	limit := unix.NsecToTimespec(int64(timeout))
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(unsafe.Pointer(&limit)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
