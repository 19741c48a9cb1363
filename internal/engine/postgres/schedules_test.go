package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/engine"
)

// TestSchedules: the engine stores schedules, runs them, and gives its own errors.
func TestSchedules(t *testing.T) {
	t.Parallel()
	serves := startEngine(t, migrated.Open(t)).Serves()
	s := serves.Schedules
	if err := serves.Queues.Create(t.Context(), "jobs", nil); err != nil {
		t.Fatal(err)
	}
	_, err := s.Put(t.Context(), engine.ScheduleSpec{Name: "n", Cron: "often", Queue: "jobs"})
	if field, is := errors.AsType[*engine.FieldError](err); !is || field.Field != "cron" {
		t.Errorf("a wrong expression: %v", err)
	}
	_, err = s.Put(t.Context(), engine.ScheduleSpec{Name: "n", Cron: "@daily", Queue: "nowhere"})
	if field, is := errors.AsType[*engine.FieldError](err); !is || field.Field != "queue" {
		t.Errorf("no queue: %v", err)
	}
	if err := s.Drop(t.Context(), "n"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("no schedule: %v", err)
	}
	stored, err := s.Put(t.Context(), engine.ScheduleSpec{Name: "n", Cron: "@every 1s", Queue: "jobs", Payload: []byte("p")})
	if err != nil || stored.TimeZone != "UTC" || stored.CatchUp != "latest" || stored.Due.IsZero() {
		t.Errorf("stored %+v, %v", stored, err)
	}
	consumer, err := serves.Queues.Consume(t.Context(), "jobs", engine.ConsumeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	consumer.SetCredits(1)
	got, err := consumer.Receive(t.Context(), 1)
	if err != nil || len(got) != 1 || string(got[0].Payload) != "p" {
		t.Errorf("received %v, %v", got, err)
	}
	if err := s.Pause(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	if all, err := s.List(t.Context(), "", 10); err != nil || len(all) != 1 || !all[0].Paused || time.Since(all[0].Last) > time.Hour {
		t.Errorf("listed %+v, %v", all, err)
	}
	if err := s.Resume(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	if again, err := s.Get(t.Context(), "n"); err != nil || again.Paused {
		t.Errorf("resumed %+v, %v", again, err)
	}
}
