package live

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tidewire/tidewire/internal/testkit"
)

// pty is a terminal that records everything drawn on it.
type pty struct {
	control, terminal *os.File
	before            unix.Termios

	mu    sync.Mutex // guards the field below
	drawn bytes.Buffer
}

func openPTY(t *testing.T) *pty {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(control.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	p := &pty{control: control, terminal: terminal}
	p.before = p.settings(t)
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := control.Read(b)
			if err != nil { // the other side is closed
				return
			}
			p.mu.Lock()
			p.drawn.Write(b[:n])
			p.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		terminal.Close()
		<-read
		control.Close()
	})
	return p
}

func (p *pty) settings(t *testing.T) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(p.terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn.String()
}

// wait returns when the text was written to the terminal.
func (p *pty) wait(t *testing.T, what string) {
	t.Helper()
	testkit.Eventually(t, "the terminal shows "+what, func() bool { return strings.Contains(p.text(), what) })
}

func (p *pty) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.control.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// restored checks that the terminal is as it was before.
func (p *pty) restored(t *testing.T) {
	t.Helper()
	p.wait(t, "\x1b[?1049l") // the page is closed
	p.wait(t, "\x1b[?25h")   // the cursor is back
	if now := p.settings(t); now != p.before {
		t.Errorf("settings are %+v, were %+v", now, p.before)
	}
}
