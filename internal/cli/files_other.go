//go:build !unix

package cli

// maxFiles returns how many file descriptors the process may have, if there is such a limit.
func maxFiles() (int, bool) { return 0, false }
