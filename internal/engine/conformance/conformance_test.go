package conformance

import "testing"

// TestSame: want matches exactly its own shape.
func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{`{"a":"…","b":[1,"…"]}`, `{"b":[1,{"c":2}],"a":null}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1,"b":"…"}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":2}`, false},
		{`[1]`, `[1,2]`, false},
		{`{"headers":{"n":1}}`, `{"headers":{"n": 1}}`, true},
	} {
		if same, err := Same(c.want, c.got); err != nil || same != c.same {
			t.Errorf("%s and %s: %t, %v", c.want, c.got, same, err)
		}
	}
}
