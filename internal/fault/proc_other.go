//go:build unix && !linux

package fault

import "os/exec"

// setDeathSignal does nothing: only Linux has a signal for the death of the parent.
func setDeathSignal(*exec.Cmd) {}

// awaitStopped does not wait: the signal is sent, and the process stops soon.
func (p *Proc) awaitStopped() error { return nil }
