package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/stream"
)

// TestEngineError_MessageField: the error for a key or headers that package stream refuses names the field for clients.
func TestEngineError_MessageField(t *testing.T) {
	t.Parallel()
	s := startEngine(t, migrated.Open(t))
	if _, err := s.streams.Create(t.Context(), "orders", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		message        engine.Message
		field, problem string
	}{
		{engine.Message{Key: strings.Repeat("k", stream.MaxKey+1)}, "key", "1025 bytes, want at most 1024"},
		{engine.Message{Headers: []byte(`{"a":1e999}`)}, "headers", "a number out of range"},
	} {
		answer := make(chan error, 1)
		err := s.streams.Publish(t.Context(), "orders", nil, []engine.Message{c.message}, func(_ engine.Place, err error) { answer <- err })
		if err == nil {
			err = <-answer
		}
		var field *engine.FieldError
		if !errors.As(err, &field) || field.Field != c.field || field.Problem != c.problem {
			t.Errorf("%v; want %s: %s", err, c.field, c.problem)
		}
		if !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%v is no ErrInvalid", err)
		}
	}
}
