package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxHeaderFields bounds the fields of a header, because anybody can send one: it is read before the signature is verified.
	maxHeaderFields = 16
	// maxClaimDepth is how deep claims may be nested, those of the token itself being at depth 1.
	maxClaimDepth = 64
	// maxExponent bounds the exponent of a number in claims, in both directions: PostgreSQL's numeric takes about 16,000 digits after the point.
	maxExponent = 1000
)

var errMalformed = errors.New("malformed JSON")

// splitObject returns the fields of one JSON object, of which there are at most a number. A field that is there twice, in whatever spelling, is an
// error: readers would differ in which one counts. Its time is linear in the size of the data.
func splitObject(data []byte, most int) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	fields, seen := make(map[string]json.RawMessage), make(map[string]bool)
	for d.More() {
		if len(fields) == most {
			return nil, fmt.Errorf("more than %d fields", most)
		}
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errMalformed
		}
		if seen[folded(name)] {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		seen[folded(name)] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, errMalformed
		}
		fields[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, errMalformed
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something comes after the JSON object")
	}
	return fields, nil
}

// folded is the same for all names that strings.EqualFold takes for one.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}

// decodeClaims decodes the claims of a token. It refuses names that are there twice: in the object itself in whatever spelling, and in inner ones,
// which may have names that differ in their case alone, in the same spelling. It also refuses what is JSON and no jsonb: an SQL function could
// not be asked about such a caller.
func decodeClaims(data []byte) (map[string]any, error) {
	fields, err := splitObject(data, len(data))
	if err != nil {
		return nil, err
	}
	all := make(map[string]any, len(fields))
	for name, text := range fields {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		value, err := decodeClaim(d, 2)
		if err == nil {
			err = checkText(name)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		all[name] = value
	}
	return all, nil
}

// decodeClaim decodes one value, whose syntax is right. A list or an object is at the depth.
func decodeClaim(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, errMalformed
	}
	switch t := t.(type) {
	case json.Delim:
		if depth > maxClaimDepth {
			return nil, fmt.Errorf("more than %d levels", maxClaimDepth)
		}
		if t == '[' {
			return decodeList(d, depth)
		}
		return decodeObject(d, depth)
	case string:
		return t, checkText(t)
	case json.Number:
		return t, checkNumber(t)
	}
	return t, nil
}

func decodeList(d *json.Decoder, depth int) (any, error) {
	list := []any{}
	for d.More() {
		value, err := decodeClaim(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, err := d.Token()
	return list, err
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	object := make(map[string]any)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errMalformed
		}
		if _, has := object[name]; has {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		if err := checkText(name); err != nil {
			return nil, err
		}
		if object[name], err = decodeClaim(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func checkText(text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return errors.New("a text has NUL (\\u0000), which PostgreSQL cannot store")
	}
	return nil
}

func checkNumber(n json.Number) error {
	i := strings.IndexAny(n.String(), "eE")
	if i < 0 {
		return nil
	}
	if exponent, err := strconv.Atoi(n.String()[i+1:]); err != nil || exponent < -maxExponent || exponent > maxExponent {
		return fmt.Errorf("a number has an exponent that is not from %d to %d", -maxExponent, maxExponent)
	}
	return nil
}
