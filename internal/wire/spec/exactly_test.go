package spec_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestSchema_Exactly: a body has exactly one of the fields of which there has to be one.
func TestSchema_Exactly(t *testing.T) {
	t.Parallel()
	var body *spec.Schema
	for _, r := range spec.Routes() {
		if r.Name == "redriveDead" {
			body = r.Body
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("body.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("body.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{}`: false, `{"positions":[1]}`: true, `{"filter":{"key":"k"}}`: true, `{"all":true}`: true,
		`{"positions":[1],"all":true}`: false, `{"positions":[1],"filter":{}}`: false, `{"filter":{},"all":true}`: false, `{"positions":[1],"filter":{},"all":true}`: false,
	} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); (err == nil) != want {
			t.Errorf("%s: %v, want valid: %v", text, err, want)
		}
	}
}
