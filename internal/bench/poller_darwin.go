package bench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// poller waits for many sockets at once: kqueue, level-triggered.
type poller struct {
	fd     int
	unread unread
	events []unix.Kevent_t
}

// event says what a socket is ready for.
type event struct {
	fd                 int
	readable, writable bool
}

func newPoller() (*poller, error) {
	fd, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("kqueue: %w", err)
	}
	unix.CloseOnExec(fd)
	return &poller{fd: fd, events: make([]unix.Kevent_t, 256)}, nil
}

func (p *poller) close() { unix.Close(p.fd) }

func (p *poller) add(fd int) error { return p.control(fd, unix.EVFILT_READ, unix.EV_ADD) }

// wantWrite starts or stops reporting that fd is writable.
func (p *poller) wantWrite(fd int, want bool) error {
	if want {
		return p.control(fd, unix.EVFILT_WRITE, unix.EV_ADD)
	}
	return p.control(fd, unix.EVFILT_WRITE, unix.EV_DELETE)
}

func (p *poller) control(fd, filter, flags int) error {
	var ev unix.Kevent_t
	unix.SetKevent(&ev, fd, filter, flags)
	if _, err := unix.Kevent(p.fd, []unix.Kevent_t{ev}, nil, nil); err != nil {
		return fmt.Errorf("kqueue: %w", err)
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
	limit := unix.NsecToTimespec(int64(timeout))
	n, err := unix.Kevent(p.fd, nil, p.events, &limit)
	if err == unix.EINTR {
		n, err = 0, nil
	}
	if err != nil {
		return fmt.Errorf("kqueue: %w", err)
	}
	for _, ev := range p.events[:n] {
		ready(event{
			fd:       int(ev.Ident),
			readable: ev.Filter == unix.EVFILT_READ,
			writable: ev.Filter == unix.EVFILT_WRITE,
		})
	}
	for _, fd := range unread {
		ready(event{fd: fd, readable: true})
	}
	return nil
}
