package gateway_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

var mapType = reflect.TypeFor[map[string]any]()

// cutKind returns the type of the request whose answer has that name.
func cutKind(name string) (string, bool) {
	kind, ok := strings.CutPrefix(name, "answer ")
	return kind, ok && !strings.HasPrefix(kind, "of ")
}

// mark takes note of a message and all its fields. t.mu is held.
func (t *traffic) mark(name string, v any) {
	t.seen[name] = true
	walk(name, allSchemas[name], v, true, func(field string) { t.seen[field] = true })
}

// allSchemas are the schemas, and allObjects those that others refer to.
var allSchemas, allObjects = schemas(), func() map[string]*spec.Schema {
	all := make(map[string]*spec.Schema)
	for _, o := range spec.Objects() {
		all[o.Name] = o.Schema
	}
	return all
}()

// walk calls see with the names of the fields of a schema: of all, or of those that a value has.
func walk(name string, s *spec.Schema, v any, given bool, see func(field string)) {
	if s == nil {
		return
	}
	if of := s.RefName(); of != "" {
		if given {
			walk("object "+of, allObjects[of], v, given, see)
		}
		return
	}
	fields, _ := v.(map[string]any)
	for _, p := range s.Properties {
		one, has := fields[p.Name]
		if given && !has {
			continue
		}
		see(name + "." + p.Name)
		walk(name+"."+p.Name, p.Schema, one, given, see)
	}
	if s.Items != nil {
		list, _ := v.([]any)
		if !given {
			list = []any{nil}
		}
		for _, one := range list {
			walk(name, s.Items, one, given, see)
		}
	}
	for _, one := range s.AnyOf {
		walk(name, one, v, given, see)
	}
}

// everything is what is described: messages, routes, their fields, and codes. Fields that are not used need not occur.
func everything() map[string]bool {
	all := make(map[string]bool)
	for name, s := range schemas() {
		if !strings.HasPrefix(name, "object ") {
			all[name] = true
		}
		walk(name, s, nil, false, func(field string) { all[field] = true })
		for _, p := range s.Properties {
			if strings.HasPrefix(p.Schema.Description, "not used") {
				delete(all, name+"."+p.Name)
			}
		}
	}
	for _, r := range spec.Routes() {
		all["route "+r.Pattern()] = true
		for _, optional := range []string{"query of ", "header of ", "data of "} {
			delete(all, optional+r.Pattern())
		}
	}
	for _, e := range spec.Errors() {
		all["code "+e.Code] = true
	}
	return all
}

// whole reports whether all tests of the package ran.
func whole() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz", "test.bench"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}

// compared runs the tests, and then compares what was recorded with what is described.
type compared struct{ m *testing.M }

// Run implements goleak.TestingM.
func (c compared) Run() int {
	code := c.m.Run()
	if problems := recorded.differences(); len(problems) > 0 {
		fmt.Fprintf(os.Stderr, "--- FAIL: the traffic of the tests is not as internal/wire/spec describes it\n%s\n", strings.Join(problems, "\n"))
		return max(code, 1)
	}
	return code
}

// differences are those between the traffic and what is described.
func (t *traffic) differences() (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(t.problems)) {
		all = append(all, fmt.Sprintf("%s\n\tMend its description in internal/wire/spec, or the server.\n\t%s", what, strings.ReplaceAll(t.problems[what], "\n", "\n\t")))
	}
	if !whole() {
		return all
	}
	described := everything()
	for _, name := range slices.Sorted(maps.Keys(described)) {
		switch _, known := unseen[name]; {
		case !t.seen[name] && !known:
			all = append(all, fmt.Sprintf("%q is described in internal/wire/spec, and no test of internal/gateway has it: add a test, or remove it there, or add a line with a reason to unseen in traffic_unseen_test.go", name))
		case t.seen[name] && known:
			all = append(all, fmt.Sprintf("%q is in a test: remove it from unseen in traffic_unseen_test.go", name))
		}
	}
	for name := range unseen {
		if !described[name] {
			all = append(all, fmt.Sprintf("%q is not described any more: remove it from unseen in traffic_unseen_test.go", name))
		}
	}
	return all
}
