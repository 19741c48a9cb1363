package postgres

import "testing"

func TestWireField(t *testing.T) {
	for field, want := range map[string]string{
		"events[2].tags[0]":                  "events[2].tags[0]",
		"condition.items[1].types":           "condition.query.items[1].types",
		"projections[3].query.items[0].tags": "queries[3].items[0].tags",
		"request.client":                     "client",
		"projections":                        "queries",
	} {
		if got := wireField(field); got != want {
			t.Errorf("%s is %s on the wire, want %s", field, got, want)
		}
	}
}
