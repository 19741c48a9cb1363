package spec_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tidewire/tidewire/internal/wire"
	"github.com/tidewire/tidewire/internal/wire/spec"
)

// TestOpenAPI_IsValid: the document is OpenAPI 3.1, as a library that is not ours reads it.
func TestOpenAPI_IsValid(t *testing.T) {
	t.Parallel()
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromData(spec.OpenAPI("v0.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAsyncAPI_IsValid: the document is AsyncAPI 3, by the schema of that project. It is fetched from the npm registry once, and kept.
func TestAsyncAPI_IsValid(t *testing.T) {
	t.Parallel()
	c := jsonschema.NewCompiler()
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(asyncAPISchema(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource("asyncapi.json", meta); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.AsyncAPI("v0.0.0")))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Error(err)
	}
}

const (
	specsURL = "https://registry.npmjs.org/@asyncapi/specs/-/specs-6.11.1.tgz"
	specsSum = "01af8744dc33c0c7eb2e908f6a955319ee58b70ecadc9387d1aeb16c0cd28928"
)

// asyncAPISchema returns the JSON Schema of AsyncAPI 3.0.0. It skips the test if there is no network, but not in CI.
func asyncAPISchema(t *testing.T) []byte {
	t.Helper()
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	kept := filepath.Join(dir, "tidewire", "asyncapi-"+specsSum[:16]+".tgz")
	archive, err := os.ReadFile(kept)
	if err != nil || sumOf(archive) != specsSum {
		archive, err = fetch(t, specsURL)
		switch {
		case err != nil && os.Getenv("CI") == "":
			t.Skipf("the schema of AsyncAPI cannot be fetched: %v", err)
		case err != nil:
			t.Fatal(err)
		case sumOf(archive) != specsSum:
			t.Fatalf("%s: SHA-256 %s, want %s", specsURL, sumOf(archive), specsSum)
		}
		keep(t, kept, archive)
	}
	return fileOf(t, archive, "package/schemas/3.0.0.json")
}

func sumOf(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func fetch(t *testing.T, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 16<<20))
}

// keep writes a file, which another process may write at the same time.
func keep(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	part, err := os.CreateTemp(filepath.Dir(path), "part")
	if err != nil {
		t.Fatal(err)
	}
	_, err = part.Write(b)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// fileOf returns a file of a tar.gz archive.
func fileOf(t *testing.T, archive []byte, name string) []byte {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(unzipped)
	for {
		h, err := files.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			b, err := io.ReadAll(files)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
}

// TestPages: docs/reference has the pages that this package makes.
func TestPages(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]byte{"messages.md": spec.MessagesPage(), "http.md": spec.HTTPPage()} {
		got, err := os.ReadFile("../../../docs/reference/" + name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/reference/%s is not what internal/wire/spec makes (%v): make docs", name, err)
		}
	}
}

// TestSpec_EveryRequest: each request that a server takes is described, and no other; each field of requests has a description.
func TestSpec_EveryRequest(t *testing.T) {
	t.Parallel()
	var described []string
	for _, r := range spec.Requests() {
		described = append(described, r.Type)
		for _, f := range r.Fields {
			if !r.Rooms && !slices.ContainsFunc(r.Schema().Properties, func(p spec.Field) bool { return p.Name == f.Name }) {
				t.Errorf("internal/wire/spec/requests.go: %s has a field %s, which wire.Requests does not let it have", r.Type, f.Name)
			}
		}
	}
	slices.Sort(described)
	if want := wire.Types(); !slices.Equal(described, want) {
		t.Errorf("internal/wire/spec/requests.go describes %q, and wire.Requests has %q: add what is missing to either", described, want)
	}
}

// TestSpec_Descriptions: every field, route, message and code has a description, and every code occurs once.
func TestSpec_Descriptions(t *testing.T) {
	t.Parallel()
	for _, o := range spec.Objects() {
		describes(t, o.Name, o.Schema)
	}
	for _, r := range spec.Requests() {
		describes(t, r.Type, r.Schema())
		if ok := r.Ok(); ok != nil {
			describes(t, r.Type+".ok", ok)
		}
	}
	for _, p := range spec.Pushes() {
		describes(t, p.Type, p.Schema())
	}
	names := make(map[string]bool)
	for _, r := range spec.Routes() {
		if r.Name == "" || names[r.Name] || r.Summary == "" || r.Right == "" || r.Answer == nil && r.Events == nil {
			t.Errorf("%s %s: want a Name of its own, a Summary, a Right and an Answer", r.Method, r.Path)
		}
		names[r.Name] = true
		for _, fields := range []spec.Fields{r.PathParts(), r.Query, r.Headers} {
			describes(t, r.Name, &spec.Schema{Properties: fields})
		}
		describes(t, r.Name, r.Body)
		describes(t, r.Name, r.Answer)
		for _, code := range r.AllCodes() {
			if !slices.ContainsFunc(spec.Errors(), func(e spec.Error) bool { return e.Code == code && e.Status != 0 }) {
				t.Errorf("%s has the code %s, which is not in internal/wire/spec/errors.go", r.Name, code)
			}
		}
	}
	codes := make(map[string]bool)
	for _, e := range spec.Errors() {
		if e.Why == "" || codes[e.Code] {
			t.Errorf("the code %s: want it once, with a reason", e.Code)
		}
		codes[e.Code] = true
	}
}

// describes checks that all fields of a schema have a description.
func describes(t *testing.T, where string, s *spec.Schema) {
	t.Helper()
	if s == nil {
		return
	}
	for _, p := range s.Properties {
		if p.Schema == nil {
			t.Errorf("%s.%s has no schema", where, p.Name)
			continue
		}
		if p.Schema.Description == "" && p.Schema.RefName() == "" {
			t.Errorf("%s.%s has no description", where, p.Name)
		}
		describes(t, where+"."+p.Name, p.Schema)
	}
	describes(t, where, s.Items)
	for _, one := range s.AnyOf {
		describes(t, where, one)
	}
}
