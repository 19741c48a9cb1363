// Package authtest signs tokens for tests.
package authtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"
)

// Token returns a token for the audience tidewire, signed by HS256, that ends after a time. Further claims may replace the usual ones.
func Token(t testing.TB, secret []byte, user string, life time.Duration, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"sub": user, "aud": "tidewire", "exp": float64(time.Now().Add(life).UnixMilli()) / 1000}
	for name, value := range claims {
		all[name] = value
	}
	input := part(t, map[string]string{"alg": "HS256"}) + "." + part(t, all)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func part(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}
