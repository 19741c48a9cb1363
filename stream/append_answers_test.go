package stream_test

import (
	"testing"

	"github.com/tidewire/tidewire/stream"
)

// TestAppenders_OneCallsBackForLong: while the callback of one stream blocks, those of others
// are called.
func TestAppenders_OneCallsBackForLong(t *testing.T) {
	t.Parallel()
	db := setup(t)
	_, appenders := several(t, db, smallPool(t, db, 8), 20)
	for range 5 { // first new goroutines, then reused ones
		blocked, release := make(chan struct{}), make(chan struct{})
		err := appenders[0].Submit(t.Context(), messages("blocks"), func(stream.Appended, error) {
			close(blocked)
			<-release
		})
		if err != nil {
			t.Fatal(err)
		}
		<-blocked
		submitAll(t, appenders[1:], "goes on").Wait()
		close(release)
		mustAppend(t, appenders[0], messages("after")...)
	}
}

// TestAppenders_OneOfARoundCallsBackForLong: the same when one transaction has stored all
// batches, and one goroutine begins the callbacks.
func TestAppenders_OneOfARoundCallsBackForLong(t *testing.T) {
	t.Parallel()
	db := setup(t)
	pool := smallPool(t, db, 8)
	_, appenders := several(t, db, pool, 40)
	giveBack := occupySessions(t, pool)
	release := make(chan struct{})
	defer close(release)
	for _, a := range appenders[:20] {
		if err := a.Submit(t.Context(), messages("blocks"), func(stream.Appended, error) { <-release }); err != nil {
			t.Fatal(err)
		}
	}
	others := submitAll(t, appenders[20:], "goes on")
	giveBack()
	others.Wait()
}
