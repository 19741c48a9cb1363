package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const madeBy = "<!-- `make docs` writes this page from internal/wire/spec: do not edit it. -->\n\n"

// MessagesPage returns docs/reference/messages.md.
func MessagesPage() []byte {
	var p page
	p.line("# Messages of `/ws`\n\n" + madeBy +
		"All messages of [`/ws`](../protocol.md), and those of `/ws/chat`, with their fields. A server has the same as AsyncAPI 3 at `/v1/asyncapi.json`.\n\n" +
		"A request has a `type`, and an `id` if it wants an answer. " + ignoreUnknown + " Limits on the length of a text count bytes of UTF-8.\n")
	p.line("## Requests\n")
	for _, r := range Requests() {
		p.request(&r)
	}
	p.line("## Messages of the server\n\nBesides the answer `ok`, which each request above has with the fields given there.\n")
	for _, m := range Pushes() {
		where := "`/ws` and `/ws/chat`"
		switch {
		case !m.Chat:
			where = "`/ws`"
		case !m.Session:
			where = "`/ws/chat`"
		}
		p.line(fmt.Sprintf("### `%s` of the server\n\n%s On %s.\n", m.Type, m.Summary, where))
		p.table(always, m.Fields)
	}
	p.line("## Objects\n\nSeveral messages have these objects as fields.\n")
	for _, o := range Objects() {
		p.line("### Object `" + o.Name + "`\n")
		p.rules(o.Schema)
		mark := always
		if o.Schema.Additional != nil && !*o.Schema.Additional {
			mark = wanted // a client sends it
		}
		p.table(mark, o.Schema.Properties)
	}
	p.errors()
	return p.bytes()
}

// HTTPPage returns docs/reference/http.md.
func HTTPPage() []byte {
	var p page
	p.line("# Requests of `/v1`\n\n" + madeBy +
		"All requests over HTTP, with their parameters, bodies and answers. A server has the same as OpenAPI 3.1 at `/v1/openapi.json`, for everybody: that path and `/v1/asyncapi.json` need no token.\n\n" +
		"Bodies and answers are JSON objects (`Content-Type: application/json`, at most `--max-message`). Names in paths are percent-encoded: `/v1/streams/a%2Fb`. Clients take `.` and `..` for steps, so these names have a `~` before them: `/v1/streams/~..`; a name that is such an escape has one more (`~~..`). " +
		"Each answer has the header `X-Request-Id`: that of the request, if it has 1 to 128 visible ASCII characters, or a new one. It is in the lines of the log and of the audit log (`request_id`). " +
		"An error is `{\"error\":{…}}` with the fields of [problem](messages.md#object-problem), and with the status and a code of [this table](messages.md#errors). " + ignoreUnknown +
		" How these requests work together is in [the guide](../protocol.md#http).\n\nEach request may get " + codeList(CommonCodes()) + "; and one with a body " + codeList(bodyCodes) + ".\n")
	p.line("| request | |\n|---|---|")
	for _, r := range Routes() {
		p.line(fmt.Sprintf("| [`%s %s`](#%s) | %s |", r.Method, r.Path, strings.ToLower(r.Name), r.Summary))
	}
	p.line("")
	for _, r := range Routes() {
		p.route(&r)
	}
	return p.bytes()
}

// page is a page of Markdown.
type page struct{ strings.Builder }

func (p *page) line(text string) { p.WriteString(text + "\n") }

func (p *page) bytes() []byte { return []byte(strings.TrimRight(p.String(), "\n") + "\n") }

func (p *page) request(r *Request) {
	p.line("### `" + r.Type + "`\n\n" + r.Summary + right(r.Right) + "\n\n```json")
	for _, e := range r.Examples() {
		p.line(string(e.Payload))
	}
	p.line("```\n")
	s := r.Schema()
	p.rules(s)
	p.table(wanted, s.Properties[2:]) // without type and id
	switch {
	case r.Ok() == nil:
	case len(r.Answer) == 0:
		p.line("Its `ok` has no other fields.\n")
	default:
		p.line("Its `ok` has:\n")
		p.table(always, r.Answer)
	}
}

func right(of string) string {
	if of == "" {
		return ""
	}
	return " Right: " + of + "."
}

// rules says of which fields there has to be exactly one, and whether there may be others.
func (p *page) rules(s *Schema) {
	switch {
	case len(s.Exactly) > 0:
		p.line("It has exactly one of `" + strings.Join(s.Exactly, "`, `") + "`.\n")
	case s.Additional != nil && *s.Additional:
		p.line("It may have any other fields.\n")
	}
}

// How a field is marked that a client has to send, and one that a server always sends.
const (
	wanted = "**Required.** "
	always = "**Always.** "
)

// table is a table of fields.
func (p *page) table(mark string, fields Fields) {
	if len(fields) == 0 {
		return
	}
	p.line("| field | type | |\n|---|---|---|")
	p.rows("", mark, fields)
	p.line("")
}

// rows are the fields, and those of objects in them.
func (p *page) rows(prefix, mark string, fields Fields) {
	for _, f := range fields {
		name, s := prefix+f.Name, f.Schema
		described := s.Description
		if f.Required {
			described = mark + described
		}
		if s.Default != nil {
			described += fmt.Sprintf(". Default: `%v`", s.Default)
		}
		p.line(fmt.Sprintf("| `%s` | %s | %s |", name, kindOf(s), described))
		inner := s
		if s.Items != nil {
			inner, name = s.Items, name+"[]"
		}
		p.rows(name+".", mark, inner.Properties)
	}
}

// kindOf describes the type and the limits of a schema.
func kindOf(s *Schema) string {
	if of := s.RefName(); of != "" {
		return fmt.Sprintf("[%s](messages.md#object-%s)", of, strings.ToLower(of))
	}
	switch kind := s.Type.(type) {
	case []string:
		if len(kind) > 2 {
			return "any"
		}
		return strings.Join(kind, " or ")
	case string:
		return kind + limitsOf(s)
	}
	return "any"
}

func limitsOf(s *Schema) string {
	switch {
	case s.Const != nil:
		return fmt.Sprintf(": `%v`", s.Const)
	case len(s.Enum) > 0:
		return ": `" + strings.Join(slices.DeleteFunc(slices.Clone(s.Enum), func(one string) bool { return one == "" }), "`, `") + "`"
	case s.Items != nil && s.Items.Properties == nil:
		return " of " + kindOf(s.Items) + span(s.MinItems, s.MaxItems, " items")
	case s.Items != nil:
		return " of objects" + span(s.MinItems, s.MaxItems, " items")
	case s.Format != "":
		return ", RFC 3339"
	case s.Encoding != "":
		return ", base64"
	case s.MaxLength > 0:
		return span(s.MinLength, s.MaxLength, " bytes")
	case s.Minimum != nil && s.Maximum != nil:
		return ", " + number(*s.Minimum) + " to " + number(*s.Maximum)
	case s.Minimum != nil:
		return ", " + number(*s.Minimum) + " or more"
	}
	return ""
}

// span is a number of things: from least, to most unless that is 0.
func span(least, most int, things string) string {
	switch {
	case most > 0 && least > 0:
		return ", " + number(int64(least)) + " to " + number(int64(most)) + things
	case most > 0:
		return ", up to " + number(int64(most)) + things
	case least > 0:
		return ", " + number(int64(least)) + " or more" + things
	}
	return ""
}

// number writes a number with commas.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func (p *page) route(r *Route) {
	p.line(fmt.Sprintf("### %s\n\n`%s %s`: %s Right: %s.\n", r.Name, r.Method, r.Path, r.Summary, r.Right))
	for _, part := range []struct {
		name   string
		fields Fields
	}{{"Parameters of the URL:", r.Query}, {"Headers:", r.Headers}} {
		if len(part.fields) > 0 {
			p.line(part.name + "\n")
			p.table(wanted, part.fields)
		}
	}
	if r.Body != nil {
		p.body(r)
	}
	switch {
	case r.Events != nil:
		data := kindOf(r.Events)
		if r.Events.RefName() == "" {
			data = "the message `" + r.EventName + "` of `/ws`"
		}
		p.line(fmt.Sprintf("Answer: [server-sent events](../protocol.md#server-sent-events) `%s`, each with %s as its data.\n", r.EventName, data))
		for _, kind := range r.OtherEvents {
			p.line(fmt.Sprintf("Also `%[1]s`, with the message [`%[1]s`](messages.md#%[1]s-of-the-server) of `/ws`.\n", kind))
		}
	default:
		p.answer(r.Answer)
	}
	if len(r.Codes) > 0 {
		p.line("Errors: " + codeList(r.Codes) + ".\n")
	}
}

func (p *page) body(r *Route) {
	may := "Body:"
	if r.NoBody {
		may = "Body, which may be missing:"
	}
	var used Fields
	for _, f := range r.Body.Properties {
		if !strings.HasPrefix(f.Schema.Description, "not used") {
			used = append(used, f)
		}
	}
	p.line(may + "\n")
	p.table(wanted, used)
	p.rules(r.Body)
}

func (p *page) answer(s *Schema) {
	switch {
	case len(s.AnyOf) > 0:
		p.line("Answer, one of:\n")
		for _, one := range s.AnyOf {
			p.table(always, one.Properties)
		}
	case len(s.Properties) == 0 && s.Description != "":
		p.line("Answer: " + s.Description + ".\n")
	case len(s.Properties) == 0:
		p.line("Answer: `{}`.\n")
	default:
		p.line("Answer:\n")
		p.table(always, s.Properties)
	}
}

func codeList(codes []string) string { return "`" + strings.Join(codes, "`, `") + "`" }

// errors is the table of errors.
func (p *page) errors() {
	p.line("## Errors\n\nThe codes of `/ws`, `/ws/chat` and `/v1`, and the status that they have over HTTP. *Stored* means: may the request have had an effect? *Again* is `retryable`: " +
		"the same request can be sent again later, and has no effect twice. With `retry_after_ms`, wait so long first. After any other error something has to change before.\n")
	p.line("| code | HTTP | again | stored | why, and what to do |\n|---|---:|---|---|---|")
	for _, e := range Errors() {
		status, again := "–", ""
		if e.Status != 0 {
			status = strconv.Itoa(e.Status)
		}
		if e.Retryable {
			again = "yes"
		}
		p.line(fmt.Sprintf("| `%s` | %s | %s | %s | %s |", e.Code, status, again, e.Stored, e.Why))
	}
}
