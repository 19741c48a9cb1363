package eventstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tidewire/tidewire/eventstore"
)

func TestStore_Types(t *testing.T) {
	t.Parallel()
	s := open(t, setup(t).Pool, eventstore.Config{})
	if got, err := s.Types(t.Context(), "", "", 10); err != nil || len(got) != 0 {
		t.Errorf("%v, %v, want none of an empty store", got, err)
	}
	for range 3 {
		mustAppend(t, s, event("b"), event("B%"), event("Ba"), event("ä"), event("Z"), event("B"))
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"", "", 10, []string{"B", "B%", "Ba", "Z", "b", "ä"}},
		{"", "", 2, []string{"B", "B%"}},
		{"", "Ba", 2, []string{"Z", "b"}},
		{"B", "", 10, []string{"B", "B%", "Ba"}},
		{"B", "B", 1, []string{"B%"}},
		{"B", "A", 10, []string{"B", "B%", "Ba"}},
		{"B", "C", 10, nil},
		{"B%", "", 10, []string{"B%"}},
		{"ä", "", 10, []string{"ä"}},
		{"", "ä", 10, nil},
		{"none", "", 10, nil},
	} {
		if got, err := s.Types(t.Context(), c.prefix, c.after, c.limit); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("prefix %q after %q, %d: %q, %v, want %q", c.prefix, c.after, c.limit, got, err, c.want)
		}
	}
	for _, c := range []struct {
		prefix, after string
		limit         int
		field         string
	}{{"\x00", "", 1, "prefix"}, {"", "\xff", 1, "after"}, {"", "", 0, "limit"}, {"", "", eventstore.MaxTypes + 1, "limit"}} {
		var invalid *eventstore.InvalidError
		if _, err := s.Types(t.Context(), c.prefix, c.after, c.limit); !errors.As(err, &invalid) || invalid.Field != c.field {
			t.Errorf("%+v: %v, want that %s is invalid", c, err, c.field)
		}
	}
}

func ExampleStore_Types() {
	s, done := exampleStore()
	defer done()
	s.Append(context.Background(), eventstore.Event{Type: "CourseOffered"}, eventstore.Event{Type: "CourseClosed"}, eventstore.Event{Type: "StudentEnrolled"})
	types, err := s.Types(context.Background(), "Course", "", 10)
	fmt.Println(types, err)
	// Output: [CourseClosed CourseOffered] <nil>
}
