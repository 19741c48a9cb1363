package spec_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestExamples_MatchTheirSchemas: each request has examples, and they match its schema in the AsyncAPI document.
func TestExamples_MatchTheirSchemas(t *testing.T) {
	t.Parallel()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.AsyncAPI("v0.0.0")))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("asyncapi.json", doc); err != nil {
		t.Fatal(err)
	}
	for _, r := range spec.Requests() {
		schema, err := c.Compile("asyncapi.json#/components/messages/" + r.Type + "/payload")
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Examples()) == 0 {
			t.Errorf("internal/wire/spec/examples.go: add an example of %s", r.Type)
		}
		for _, e := range r.Examples() {
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
			if err == nil {
				err = schema.Validate(value)
			}
			var message struct{ Type string }
			json.Unmarshal(e.Payload, &message)
			if err != nil || message.Type != r.Type || e.Name == "" {
				t.Errorf("%s: %s %s: %v", r.Type, e.Name, e.Payload, err)
			}
		}
	}
}
