package auth

import (
	"testing"
	"time"
)

// BenchmarkAllow: one right of a caller with ten rules, of which the last grants it.
func BenchmarkAllow(b *testing.B) {
	texts := []string{"join,chat room:public-*", "read stream:news", "read stream:user/{sub}", "consume queue:*", "read stream:a/**/b", "read stream:b*", "read stream:c*", "read stream:d*", "read stream:e*", "publish stream:tenant/*/orders"}
	var rules []Rule
	for _, text := range texts {
		r, err := ParseRule(text)
		if err != nil {
			b.Fatal(err)
		}
		rules = append(rules, r)
	}
	g := NewGrants(rules, func(string) (string, bool) { return "u7", true })
	b.ReportAllocs()
	for b.Loop() {
		if !g.Allow("publish", Stream, "tenant/7/orders") {
			b.Fatal("not granted")
		}
	}
}

// BenchmarkVerify: a connect with a token.
func BenchmarkVerify(b *testing.B) {
	keys := []Key{mustKey(b)(NewSecret("", secret))}
	token := sign(b, secret, hs256, good("exp", time.Now().Unix()+1000))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Verify(token, keys, config, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
