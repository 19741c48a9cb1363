package spec

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Schema is a JSON Schema. It has only keywords that mean the same in the drafts 7 and 2020-12, because readers of AsyncAPI use the
// first, and those of OpenAPI 3.1 the second.
type Schema struct {
	Ref         string    `json:"$ref,omitempty"`
	Type        any       `json:"type,omitempty"` // a string, or several
	Const       any       `json:"const,omitempty"`
	Enum        []string  `json:"enum,omitempty"`
	Format      string    `json:"format,omitempty"`
	Encoding    string    `json:"contentEncoding,omitempty"`
	Minimum     *int64    `json:"minimum,omitempty"`
	Maximum     *int64    `json:"maximum,omitempty"`
	MinLength   int       `json:"minLength,omitempty"`
	MaxLength   int       `json:"maxLength,omitempty"`
	Items       *Schema   `json:"items,omitempty"`
	MinItems    int       `json:"minItems,omitempty"`
	MaxItems    int       `json:"maxItems,omitempty"`
	Properties  Fields    `json:"properties,omitempty"`
	Required    []string  `json:"required,omitempty"`
	Additional  *bool     `json:"additionalProperties,omitempty"`
	AnyOf       []*Schema `json:"anyOf,omitempty"`
	Not         *Schema   `json:"not,omitempty"`
	Default     any       `json:"default,omitempty"`
	Exactly     []string  `json:"-"` // the fields of which there is exactly one: see withExactly
	Description string    `json:"description,omitempty"`
}

// Field is a property of an object, or a parameter.
type Field struct {
	Name     string
	Required bool
	Schema   *Schema
}

// Fields are properties, in the order in which a reader wants them.
type Fields []Field

// MarshalJSON implements json.Marshaler: an object of the schemas.
func (f Fields) MarshalJSON() ([]byte, error) {
	o := make(object, len(f))
	for i, one := range f {
		o[i] = member{one.Name, one.Schema}
	}
	return json.Marshal(o)
}

// object is a JSON object with an order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name) // a string can't fail
		b.Write(name)
		b.WriteByte(':')
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// optional and required make a Field.
func optional(name string, s *Schema) Field { return Field{name, false, s} }
func required(name string, s *Schema) Field { return Field{name, true, s} }

// opened returns the schema of an object with any other fields, which belong to the application.
func (s *Schema) opened() *Schema {
	yes := true
	s.Additional = &yes
	return s
}

// objectOf returns the schema of an object. closed: it has no other fields.
func objectOf(closed bool, fields ...Field) *Schema {
	s := &Schema{Type: "object", Properties: fields}
	for _, f := range fields {
		if f.Required {
			s.Required = append(s.Required, f.Name)
		}
	}
	if closed {
		no := false
		s.Additional = &no
	}
	return s
}

func text(description string) *Schema { return &Schema{Type: "string", Description: description} }

// textUpTo is a text of at most so many bytes. A schema can only count characters, of which there are never more.
func textUpTo(least, most int, description string) *Schema {
	return &Schema{Type: "string", MinLength: least, MaxLength: most, Description: description}
}

func oneOfTexts(description string, texts ...string) *Schema {
	return &Schema{Type: "string", Enum: texts, Description: description}
}

// figure is a number that need not be whole.
func figure(description string) *Schema { return &Schema{Type: "number", Description: description} }

func integer(description string) *Schema { return &Schema{Type: "integer", Description: description} }

func atLeast(low int64, description string) *Schema {
	return &Schema{Type: "integer", Minimum: &low, Description: description}
}

func between(low, high int64, description string) *Schema {
	return &Schema{Type: "integer", Minimum: &low, Maximum: &high, Description: description}
}

func boolean(description string) *Schema { return &Schema{Type: "boolean", Description: description} }

func moment(description string) *Schema {
	return &Schema{Type: "string", Format: "date-time", Description: description}
}

func anyObject(description string) *Schema { return &Schema{Type: "object", Description: description} }

// listOf is an array. A most of 0 is no limit.
func listOf(item *Schema, least, most int, description string) *Schema {
	return &Schema{Type: "array", Items: item, MinItems: least, MaxItems: most, Description: description}
}

// ref refers to an object of Objects.
func ref(name, description string) *Schema {
	return &Schema{Ref: refPrefix + name, Description: description}
}

const refPrefix = "#/components/schemas/"

// byDefault returns the schema with a default value.
func (s *Schema) byDefault(v any) *Schema {
	with := *s
	with.Default = v
	return &with
}

// said returns the schema with another description.
func (s *Schema) said(description string) *Schema {
	with := *s
	with.Description = description
	return &with
}

// RefName returns the name of the object that the schema refers to, or "".
func (s *Schema) RefName() string {
	if len(s.Ref) <= len(refPrefix) {
		return ""
	}
	return s.Ref[len(refPrefix):]
}

// Closed returns a copy of the schema in which no object that lists its fields has others: for tests of what a server sends.
func (s *Schema) Closed() *Schema {
	if s == nil {
		return nil
	}
	with := *s
	if len(s.Properties) > 0 && s.Additional == nil {
		no := false
		with.Additional = &no
	}
	with.Items = s.Items.Closed()
	with.Properties = slices.Clone(s.Properties)
	for i := range with.Properties {
		with.Properties[i].Schema = with.Properties[i].Schema.Closed()
	}
	with.AnyOf = closedAll(s.AnyOf)
	return &with
}

func closedAll(all []*Schema) []*Schema {
	with := slices.Clone(all)
	for i := range with {
		with[i] = with[i].Closed()
	}
	return with
}
