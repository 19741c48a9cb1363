// Package testkit has what tests of all packages need: waiting for a condition, and the levels of tests.
package testkit

import (
	"os"
	"testing"
	"time"
)

// LongVariable names the environment variable that, with any value, runs the long tests too.
const LongVariable = "TIDEWIRE_TEST_LONG"

// Long skips the test unless long tests run: make test-long sets LongVariable. Such a test repeats a promise that a
// faster test holds: with more seeds, versions, sizes or minutes.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv(LongVariable) == "" {
		t.Skip("a long test: make test-long runs it")
	}
}

// patience is long, because only a test that fails waits for its end, and a machine may be busy.
const patience = 3 * time.Minute

// Eventually waits until a condition holds, and ends the test if it does not hold within three minutes. It is for states of
// PostgreSQL, of the system and of other processes, which report no change. Within the process, wait for a channel.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
	}
}
