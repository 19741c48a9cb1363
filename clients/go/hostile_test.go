package tidewire

import (
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

func TestPausesOfAnyLengthAreKept(t *testing.T) {
	for _, text := range []string{"retry_after_ms=9223372036854775807", "retry_after_ms=99999999999999999"} {
		if wait := pauseAfter(&websocket.CloseError{Code: 1001, Text: text}, 0); wait < time.Hour {
			t.Errorf("%s: waits %s", text, wait)
		}
	}
	w := wireError{Code: "busy", Retryable: true, RetryAfterMS: -5}
	if wait := w.base("1").RetryAfter; wait < 0 {
		t.Errorf("waits %s", wait)
	}
	w.RetryAfterMS = 1 << 62
	if wait := w.base("1").RetryAfter; wait < time.Hour {
		t.Errorf("waits %s", wait)
	}
}
