package testkit

import (
	"bytes"
	"strings"
	"sync"
)

// Log keeps what is written to it, such as the log of a server or the output of a process. Its zero value is empty.
// It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends the bytes, and returns no error.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written until now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often the text occurs in what was written until now.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
