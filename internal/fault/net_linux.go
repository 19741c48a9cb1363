package fault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// lockFile has one byte for each slot. It is in the same place as ip's namespaces, so that those who share these share it, too. It stays: to remove it
// could make two files, and with them two owners of a slot.
const lockFile = "/run/tidewire-fault.lock"

// Available returns nil if network namespaces can be made, and otherwise why not. It asks the system once in a process.
func Available() error { return available() }

var available = sync.OnceValue(func() error {
	if os.Geteuid() != 0 {
		return errors.New("fault: network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("fault: network namespaces need the program ip (package iproute2): %w", err)
	}
	name := fmt.Sprintf("twf-try-%d", os.Getpid())
	if err := ip("netns", "add", name); err != nil {
		return err
	}
	return ip("netns", "del", name)
})

// lockSlot takes a slot, or returns nil if another Net has it. The lock belongs to the open file, not to the process (fcntl(2), open file description
// locks), so that two Nets of one process exclude each other; and the kernel releases it when the process ends.
func lockSlot(number int) (*slot, error) {
	file, err := os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(number), Len: 1}
	err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &lock)
	if err == nil {
		return &slot{number: number, lock: file}, nil
	}
	file.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, nil
	}
	return nil, fmt.Errorf("fault: lock %s: %w", lockFile, err)
}
