//go:build unix && !linux

package fault

// parentMain is for Linux, where a child dies with its parent.
func parentMain() {}
