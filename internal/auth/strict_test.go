package auth

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// withClaim are good claims with one more, as text.
func withClaim(claim string) string {
	return `{"sub":"u7","iss":"https://id.example.com","aud":"tidewire","exp":1800000060,` + claim + `}`
}

// TestVerify_ManyHeaderFields: a header is read before its signature is verified, and has a bounded number of fields.
func TestVerify_ManyHeaderFields(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("", secret))}
	for n, ok := range map[int]bool{maxHeaderFields: true, maxHeaderFields + 1: false, 500: false} {
		header := `{"alg":"HS256"`
		for i := range n - 1 {
			header += fmt.Sprintf(`,"%x":1`, i)
		}
		_, err := Verify(sign(t, secret, header+"}", withClaim(`"x":1`)), keys, config, now)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "header: more than 16 fields") {
			t.Errorf("%d fields: %v", n, err)
		}
	}
}

// TestVerify_NamesTwice: names that are there twice are refused: in whatever spelling in the claims themselves, in the same spelling in inner objects.
func TestVerify_NamesTwice(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("", secret))}
	for claim, ok := range map[string]bool{
		`"k":1,"x":2`: true, `"k":1,"K":2`: false, `"k":1,"` + "\u212a" + `":2`: false, `"s":1,"\u017f":2`: false, `"ß":1,"ẞ":2`: false,
		`"o":{"a":1,"b":1}`: true, `"o":{"a":1,"A":2}`: true, `"o":{"a":1,"\u0061":2}`: false, `"o":[{"p":{"a":1,"a":1}}]`: false, `"o":[{"a":1},{"a":1}]`: true,
	} {
		if _, err := Verify(sign(t, secret, hs256, withClaim(claim)), keys, config, now); (err == nil) != ok {
			t.Errorf("%s: %v", claim, err)
		}
	}
}

// TestVerify_NoJSONB: claims that PostgreSQL cannot read as jsonb are refused with their reason, because an SQL function could never be asked about them.
func TestVerify_NoJSONB(t *testing.T) {
	t.Parallel()
	keys := []Key{mustKey(t)(NewSecret("", secret))}
	for claim, says := range map[string]string{
		`"c":"a\u0000b"`: `"c": a text has NUL`, `"c\u0000":1`: "NUL", `"c":[{"d\u0000":1}]`: "NUL", `"c":1e200000`: `"c": a number has an exponent`, `"c":[1E-20000]`: "exponent",
		`"c":1e99999999999999999999`: "exponent", "\"c\":\"\xff\"": "UTF-8", `"c":` + strings.Repeat("[", 64) + strings.Repeat("]", 64): "more than 64 levels",
		`"c":"\\u0000"`: "", `"c":1e300`: "", `"c":-0.5E+7`: "", `"c":"\ud800"`: "", `"c":` + strings.Repeat("[", 63) + strings.Repeat("]", 63): "", `"c":[null,true,{}]`: "",
	} {
		_, err := Verify(sign(t, secret, hs256, withClaim(claim)), keys, config, now)
		if (err == nil) != (says == "") || err != nil && (!errors.Is(err, ErrInvalidToken) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%.40s: %v, want %q", claim, err, says)
		}
	}
}
