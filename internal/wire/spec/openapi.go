package spec

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	// Dialect is that of all schemas.
	Dialect = "https://json-schema.org/draft/2020-12/schema"

	ignoreUnknown = "Clients ignore fields that they do not know: later versions add some. The server refuses a request with a field that it does not know (`unknown_field`), and a parameter of the URL that it does not know (`invalid_parameter`). A field that is null counts as missing."
	limitsNote    = "A limit on the length of a text counts bytes of UTF-8, although a schema can only count characters."
)

// OpenAPI returns the description of /v1, as OpenAPI 3.1. version is that of the server.
func OpenAPI(version string) []byte {
	return document(object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "Tidewire /v1"}, {"version", versionOr(version)},
			{"description", "Streams, queues, events and rooms over HTTP. " + ignoreUnknown + " " + limitsNote},
			{"license", object{{"name", "MIT"}, {"identifier", "MIT"}}},
		}},
		{"jsonSchemaDialect", Dialect},
		{"servers", []any{object{{"url", "/"}}}},
		{"security", []any{object{{"token", []string{}}}, object{}}},
		{"paths", paths()},
		{"components", object{
			{"schemas", schemas()},
			{"responses", commonResponses()},
			{"securitySchemes", object{{"token", object{{"type", "http"}, {"scheme", "bearer"},
				{"description", "A token or an API key. A server in open mode needs none."}}}}},
		}},
	})
}

// document is a document as it is served.
func document(o object) []byte {
	b, err := json.Marshal(o)
	if err != nil { // not of values of ours
		panic(err)
	}
	return append(b, '\n')
}

func versionOr(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

func schemas() (all object) {
	for _, o := range Objects() {
		all = append(all, member{o.Name, o.Schema})
	}
	return append(all, member{"error", objectOf(false, required("error", ref("problem", "")))})
}

// paths groups the routes by their paths.
func paths() (all object) {
	at := make(map[string]int)
	for _, r := range Routes() {
		i, ok := at[r.Path]
		if !ok {
			i = len(all)
			at[r.Path] = i
			all = append(all, member{r.Path, object{}})
		}
		all[i].value = append(all[i].value.(object), member{strings.ToLower(r.Method), operation(&r)})
	}
	return all
}

func operation(r *Route) object {
	o := object{
		{"operationId", r.Name}, {"summary", r.Summary}, {"description", "Right: " + r.Right + "."},
		{"tags", []string{strings.Split(r.Path, "/")[2]}},
	}
	if r.Right == Public {
		o = append(o, member{"security", []any{}})
	}
	var parameters []any
	for _, in := range []struct {
		place  string
		fields Fields
	}{{"path", r.PathParts()}, {"query", r.Query}, {"header", r.Headers}} {
		for _, f := range in.fields {
			parameters = append(parameters, object{{"name", f.Name}, {"in", in.place}, {"required", f.Required}, {"description", f.Schema.Description}, {"schema", f.Schema.said("")}})
		}
	}
	if parameters != nil {
		o = append(o, member{"parameters", parameters})
	}
	if r.Body != nil {
		content := object{{"application/json", object{{"schema", r.Body}}}}
		if r.Raw {
			content = append(content, member{"application/octet-stream", object{{"schema", &Schema{Type: "string", Format: "binary", Description: "with raw: the payload itself. Any other Content-Type will do as well, but a form's and text/plain"}}}})
		}
		o = append(o, member{"requestBody", object{{"required", !r.NoBody}, {"content", content}}})
	}
	return append(o, member{"responses", responses(r)})
}

// responses are the answer, and the errors by their status.
func responses(r *Route) object {
	kind, schema := "application/json", r.Answer
	if r.Events != nil {
		kind, schema = "text/event-stream", text("server-sent events of the type "+r.EventName+": id is the position, and data is JSON of the schema x-data. The last one may be of the type error")
		for _, other := range r.OtherEvents {
			schema.Description += ". Events of the type " + other + " have the message of that type of /ws"
		}
	}
	media := object{{"schema", schema}}
	if r.Events != nil {
		media = append(media, member{"x-data", r.Events})
	}
	all := object{{"200", object{{"description", "It was carried out."}, {"content", object{{kind, media}}}}}}
	if r.Right == Public {
		all = append(all, member{"304", object{{"description", "The document is the one that If-None-Match names."}}})
	}
	codes, common := byStatus(r.AllCodes()), byStatus(CommonCodes())
	for _, status := range slices.Sorted(maps.Keys(codes)) {
		name := strconv.Itoa(status)
		if slices.Equal(codes[status], common[status]) {
			all = append(all, member{name, object{{"$ref", "#/components/responses/" + name}}})
			continue
		}
		all = append(all, member{name, errorResponse(status, codes[status])})
	}
	return all
}

// byStatus groups codes by their HTTP statuses.
func byStatus(codes []string) map[int][]string {
	all := make(map[int][]string)
	for _, e := range Errors() {
		if slices.Contains(codes, e.Code) {
			all[e.Status] = append(all[e.Status], e.Code)
		}
	}
	return all
}

// commonResponses are the errors that each route may answer with.
func commonResponses() (all object) {
	codes := byStatus(CommonCodes())
	for _, status := range slices.Sorted(maps.Keys(codes)) {
		all = append(all, member{strconv.Itoa(status), errorResponse(status, codes[status])})
	}
	return all
}

func errorResponse(status int, codes []string) object {
	return object{
		{"description", http.StatusText(status) + ": " + strings.Join(codes, ", ")},
		{"content", object{{"application/json", object{{"schema", errorWith(codes)}}}}},
	}
}

// errorWith is the answer of an error with one of these codes.
func errorWith(codes []string) object {
	return object{{"allOf", []any{
		&Schema{Ref: refPrefix + "error"},
		object{{"properties", object{{"error", object{{"properties", object{{"code", object{{"enum", codes}}}}}}}}}},
	}}}
}
