package gateway_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth"
	"github.com/tidewire/tidewire/internal/auth/authtest"
)

// explainer makes random questions and claims, of few values, so that many rules decide.
type explainer struct{ *rand.Rand }

func (m explainer) one(of ...string) string { return of[m.IntN(len(of))] }

var explainedRules = []auth.RoleRule{
	{Role: "user", Allow: parsedRules("read,publish stream:own/{sub}/**", "publish stream:{claim.tenant}-*", "enqueue queue:{claim.deep.n}", "append,query events:default#t:{claim.tenant}")},
	{Role: "admin", Allow: parsedRules("admin,publish stream:**", "keys server:*", "query events:*#x#t:*")},
	{Role: auth.AnyRole, Allow: parsedRules("chat,join room:{sub}", "publish stream:any*", "notify user:{sub}")},
	{Role: auth.Anonymous, Allow: parsedRules("publish stream:any*")},
}

func parsedRules(texts ...string) (all []auth.Rule) {
	for _, text := range texts {
		r, err := auth.ParseRule(text)
		if err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
}

// claims are those of a token that is valid.
func (m explainer) claims() map[string]any {
	values := []any{"a", "b*", "ü {}", "a/b", "", 7, 1.5, true, nil, []string{"a"}, strings.Repeat("x", 129)}
	all := map[string]any{}
	if m.IntN(3) > 0 {
		all["tenant"] = values[m.IntN(len(values))]
	}
	if m.IntN(3) > 0 {
		all["deep"] = map[string]any{"n": values[m.IntN(len(values))]}
	}
	if m.IntN(2) == 0 {
		all["role"] = m.one("user", "admin", "nobody", "anonymous", "*")
	}
	if m.IntN(3) == 0 {
		all["tidewire"] = map[string]any{"allow": []string{m.one("publish stream:any", "publish stream:*", "query events:**#t:a", "read,enqueue queue:x")}[:0:0]}
	}
	if m.IntN(3) == 0 {
		all["tidewire"] = map[string]any{"allow": []string{m.one("publish stream:any", "publish stream:*", "query events:**#t:a", "enqueue queue:**", `append events:*#t:\*`)}}
	}
	return all
}

type rightAsked struct {
	Verb string   `json:"verb"`
	Kind string   `json:"kind"`
	Name string   `json:"name"`
	Tags []string `json:"tags,omitempty"`
}

func (m explainer) right() (r rightAsked) {
	r.Kind = m.one("stream", "stream", "queue", "events", "events", "room", "user", "server")
	r.Verb = map[string]func() string{
		"stream": func() string { return m.one("publish", "publish", "read", "admin") }, "queue": func() string { return "enqueue" }, "events": func() string { return m.one("query", "append") },
		"room": func() string { return m.one("chat", "join") }, "user": func() string { return "notify" }, "server": func() string { return m.one("keys", "metrics") },
	}[r.Kind]()
	switch r.Kind {
	case "server":
	case "stream":
		r.Name = m.one("any", "any*", "own/a/x", "own/b*/x", "own/ü {}/", "a-1", "b*-", "7-x", "ü {}-", "a/b-", "orders")
	case "events":
		r.Name = m.one("default", "other")
		for range m.IntN(3) {
			r.Tags = append(r.Tags, m.one("t:a", "t:b*", "t:*", "x", "t:7", "#"))
		}
	default:
		r.Name = m.one("a", "b*", "7", "ü {}", "true", "1.5", "a/b")
	}
	return r
}

// TestAttack_Explain: the explanation of a right is what the server decides for the same token, whatever its claims are, and the rule that it proposes grants the right.
func TestAttack_Explain(t *testing.T) {
	t.Parallel()
	m := explainer{rand.New(rand.NewPCG(5, 6))}
	c := serveClosed(t, nil, explainedRules...)
	h := client{t, c.addr}
	asker := tokenOf(t, "root", time.Hour, "connections server:*")
	allowed := 0
	for range 700 {
		claims, right := m.claims(), m.right()
		sub := m.one("a", "b*", "ü {}", "a/b", "x")
		token := authtest.Token(t, tokenSecret, sub, time.Hour, claims)
		body, _ := json.Marshal(map[string]any{"rights": []any{right}})
		var really struct {
			Allowed []bool
			Role    string
		}
		status, text := h.do("POST", "/v1/rights", string(body), "Authorization", "Bearer "+token)
		claims["sub"] = sub
		question, _ := json.Marshal(map[string]any{"claims": claims, "verb": right.Verb, "kind": right.Kind, "name": right.Name, "tags": right.Tags})
		says, told := h.do("POST", "/v1/rights/explain", string(question), "Authorization", "Bearer "+asker)
		if status != http.StatusOK || says != http.StatusOK {
			if (status == http.StatusOK) != (says == http.StatusOK) {
				t.Errorf("%s:\nthe server %d %s\nexplained %d %s", question, status, text, says, told)
			}
			continue
		}
		var explained struct {
			Allowed     bool
			Role, Grant string
		}
		if json.Unmarshal([]byte(text), &really) != nil || json.Unmarshal([]byte(told), &explained) != nil || really.Allowed[0] != explained.Allowed || really.Role != explained.Role {
			t.Errorf("%s:\nthe server %s\nexplained %s", question, text, told)
			continue
		}
		if right.Kind == "stream" && right.Verb == "publish" {
			status, text := h.do("POST", "/v1/streams/"+url.PathEscape(right.Name)+"/messages", `{"payload":"x"}`, "Authorization", "Bearer "+token)
			if (status == http.StatusForbidden) == explained.Allowed {
				t.Errorf("%s: the request %d %s, explained %s", question, status, text, told)
			}
		}
		if explained.Allowed {
			allowed++
			continue
		}
		if _, text := h.do("POST", "/v1/rights", string(body), "Authorization", "Bearer "+tokenOf(t, sub, time.Hour, explained.Grant)); !strings.Contains(text, "[true]") {
			t.Errorf("%s: the rule %s does not grant it: %s", question, explained.Grant, text)
		}
	}
	if allowed < 70 {
		t.Errorf("only %d were allowed", allowed)
	}
}
