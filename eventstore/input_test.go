package eventstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
)

// TestAppend_BadInput wants a typed error that names the field, and nothing
// stored.
func TestAppend_BadInput(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	good := event("Good", "a:1")
	with := func(change func(*eventstore.Event)) []eventstore.Event {
		bad := good
		change(&bad)
		return []eventstore.Event{good, bad}
	}
	large := make([]eventstore.Event, 5)
	for i := range large {
		large[i] = eventstore.Event{Type: "Large", Data: make([]byte, eventstore.MaxData)}
	}
	var wide eventstore.Item // within each limit, and too large in all
	for n := range eventstore.MaxItemTypes {
		wide.Types = append(wide.Types, fmt.Sprint("type", n))
	}
	for n := range eventstore.MaxTags {
		wide.Tags = append(wide.Tags, fmt.Sprint(n, strings.Repeat("x", 1000)))
	}
	item := func(types []string, tags []string) eventstore.Condition {
		return eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: []eventstore.Item{{Tags: []string{"a"}}, {Types: types, Tags: tags}}}}
	}
	for _, c := range []struct {
		field     string
		events    []eventstore.Event
		condition eventstore.Condition
	}{
		{"events", nil, eventstore.Condition{}},
		{"events", make([]eventstore.Event, eventstore.MaxEvents+1), eventstore.Condition{}},
		{"events", large, eventstore.Condition{}},
		{"events[1].type", with(func(e *eventstore.Event) { e.Type = "" }), eventstore.Condition{}},
		{"events[1].type", with(func(e *eventstore.Event) { e.Type = "a\x00b" }), eventstore.Condition{}},
		{"events[1].type", with(func(e *eventstore.Event) { e.Type = "\xff" }), eventstore.Condition{}},
		{"events[1].type", with(func(e *eventstore.Event) { e.Type = strings.Repeat("x", 256) }), eventstore.Condition{}},
		{"events[1].tags", with(func(e *eventstore.Event) { e.Tags = []string{"ok", ""} }), eventstore.Condition{}},
		{"events[1].tags", with(func(e *eventstore.Event) { e.Tags = []string{"a\x00"} }), eventstore.Condition{}},
		{"events[1].tags", with(func(e *eventstore.Event) { e.Tags = []string{strings.Repeat("x", 1025)} }), eventstore.Condition{}},
		{"events[1].tags", with(func(e *eventstore.Event) { e.Tags = strings.Split(strings.Repeat("x,", 5000), ",") }), eventstore.Condition{}},
		{"events[1].data", with(func(e *eventstore.Event) { e.Data = []byte(`{"a":}`) }), eventstore.Condition{}},
		{"events[1].data", with(func(e *eventstore.Event) { e.Data = nil }), eventstore.Condition{}},
		{"events[1].data", with(func(e *eventstore.Event) { e.Data = make([]byte, eventstore.MaxData+1) }), eventstore.Condition{}},
		{"events[1].id", with(func(e *eventstore.Event) { e.ID = "\x00" }), eventstore.Condition{}},
		{"events[1].id", with(func(e *eventstore.Event) { e.ID = strings.Repeat("x", 256) }), eventstore.Condition{}},
		{"events[1].id", []eventstore.Event{{Type: "A", ID: "same"}, {Type: "A", ID: "same"}}, eventstore.Condition{}},
		{"condition.after", []eventstore.Event{good}, eventstore.Condition{After: -1}},
		{"condition.items[1].types", []eventstore.Event{good}, item([]string{""}, nil)},
		{"condition.items[1].types", []eventstore.Event{good}, item(make([]string, 1001), nil)},
		{"condition.items[1].tags", []eventstore.Event{good}, item(nil, []string{"\x00"})},
		{"condition.items[1].tags", []eventstore.Event{good}, item(nil, make([]string, 101))},
		{"condition.items[1].tags", []eventstore.Event{good}, item(wide.Types, wide.Tags)},
		{"condition.items", []eventstore.Event{good}, eventstore.Condition{FailIfEventsMatch: eventstore.Query{Items: make([]eventstore.Item, 1001)}}},
	} {
		_, err := s.AppendIf(t.Context(), c.events, c.condition)
		var invalid *eventstore.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field || !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%v, want an InvalidError of %s", err, c.field)
		}
	}
	for _, options := range []eventstore.ReadOptions{{After: -1}, {Before: -1}, {Limit: -1}, {MaxBytes: -1}} {
		if _, err := s.Query(t.Context(), eventstore.Everything(), options); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", options, err)
		}
	}
	if all := everything(t, s); len(all) != 0 {
		t.Errorf("stored %v", all)
	}
}

func TestOpen_Names(t *testing.T) {
	t.Parallel()
	db := setup(t)
	if _, err := lookupStore(t.Context(), db.Pool, "none", eventstore.Config{}); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	for _, name := range []string{"\x00", "\xff", strings.Repeat("x", 129)} {
		if _, err := ensureStore(t.Context(), db.Pool, name, eventstore.Config{}); !errors.Is(err, eventstore.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", name, err)
		}
	}
	for i, name := range []string{"", "default", "an other's \"store\"", "third"} {
		s, err := ensureStore(t.Context(), db.Pool, name, eventstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(t.Context())
		if i > 0 { // the first two are the same
			mustAppend(t, s, event("Own", fmt.Sprint("i:", i)))
			if all := everything(t, s); len(all) != 1 || all[0].Position != 1 {
				t.Errorf("store %q holds %v", name, all)
			}
		}
	}
	if names, err := eventstore.List(t.Context(), db.Pool); err != nil || len(names) != 3 {
		t.Errorf("%q, %v", names, err)
	}
}
