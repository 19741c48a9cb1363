package stream

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tidewire/tidewire/internal/pgtest"
)

func TestValidHeaders(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		`{}`: true, " \n{\"a\": \"b\"}\t": true, `{"a":{"b":[1,-2.5e3,null,true]}}`: true, `{"é":"\u20ac \ud83d\ude00 \\u0000 \n"}`: true,
		`{"n":1e308}`: true, `{"n":1E-308}`: true,
		`null`: false, `[]`: false, `"a"`: false, `{`: false, `{} {}`: false, `{'a':1}`: false, "{\"a\":\"\xff\"}": false,
		`{"a":"\u0000"}`: false, `{"\u0000":1}`: false, `{"a":"\\\u0000"}`: false,
		`{"a":"\ud83d"}`: false, `{"a":"\ud83dx"}`: false, `{"a":"\ude00"}`: false, `{"a":"\ud83d\ud83d"}`: false, `{"a":"\ud83d\n"}`: false,
		`{"n":1e309}`: false, `{"n":1e-99999}`: false, `{"n":1e99999999999999999999}`: false,
		`{"n":` + strings.Repeat("9", 401) + `}`:                          false,
		`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: false,
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`: true,
		`{"a":"` + strings.Repeat("a", MaxHeaders-8) + `"}`:               true,
		`{"a":"` + strings.Repeat("a", MaxHeaders-7) + `"}`:               false,
	} {
		if err := validHeaders([]byte(text)); (err == nil) != ok {
			t.Errorf("%.60s: %v, want valid %t", text, err, ok)
		}
	}
}

// TestValidHeaders_PostgreSQLTakesThem builds many texts from difficult pieces:
// jsonb has to accept every text that is valid here.
func TestValidHeaders_PostgreSQLTakesThem(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	pieces := []string{
		`{`, `}`, `[`, `]`, `"a":`, `:`, `,`, `"`, `\`, `\\`, `\u0000`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\u00e9`, `\n`, `\"`,
		`1`, `-0`, `0.5`, `e5`, `1e308`, `1e-308`, `1e400`, `null`, `true`, " ", "é", "\x01", "\x7f", `"x"`, `"x":"y"`, strings.Repeat("7", 390),
	}
	for seed := range pgtest.Seeds() {
		random := rand.New(rand.NewPCG(seed, 3))
		valid := 0
		for range 20_000 {
			var text strings.Builder
			for range random.IntN(6) {
				text.WriteString(pieces[random.IntN(len(pieces))])
			}
			headers := fmt.Sprintf(`{"k":"%s","v":[%s]}`, text.String(), pieces[random.IntN(len(pieces))])
			if validHeaders([]byte(headers)) != nil {
				continue
			}
			valid++
			if _, err := db.Pool.Exec(t.Context(), `SELECT $1::jsonb`, []byte(headers)); err != nil {
				t.Errorf("seed %d: PostgreSQL refuses %s: %v", seed, headers, err)
			}
		}
		if valid < 500 {
			t.Errorf("seed %d: %d valid texts, too few to tell", seed, valid)
		}
	}
}
