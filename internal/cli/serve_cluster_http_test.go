package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/auth/authtest"
	"github.com/tidewire/tidewire/websocket"
)

// httpAs returns a function that sends requests with a token.
func httpAs(t *testing.T, addr, token string) func(method, path, body string, headers ...string) string {
	t.Helper()
	return func(method, path, body string, headers ...string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
}

// TestCluster_ChatsByHTTP: chats and messages that are sent to a server by HTTP reach the members and users at another one.
func TestCluster_ChatsByHTTP(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	flags := []string{
		"--database-url", db.URL, "--cluster", "tides", "--cluster-listen", "127.0.0.1:0", "--stored-rooms", "kept",
		"--auth-secret-file", secretFile(t, serverSecret), "--rule", "*: join,chat,history,presence,admin room:**", "--rule", "*: notify user:**",
	}
	one, other := serve(t, flags...), serve(t, flags...)
	ask := httpAs(t, one.addr, authtest.Token(t, serverSecret, "backend", time.Hour, nil))
	conn, err := websocket.Dial(t.Context(), "ws://"+other.addr+"/ws", websocket.Config{Header: http.Header{"Authorization": {"Bearer " + authtest.Token(t, serverSecret, "ann", time.Hour, nil)}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Abort)
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	var read []string
	next := func() string {
		t.Helper()
		for len(read) == 0 {
			messages, err := conn.Read()
			for _, m := range messages {
				read = append(read, string(m.Payload))
			}
			if err != nil && len(read) == 0 {
				t.Fatal(err)
			}
		}
		first := read[0]
		read = read[1:]
		return first
	}
	for _, name := range []string{"loose", "kept"} {
		say(conn, `{"type":"join","room":"%s","id":1}`, name)
		if got := next(); !strings.Contains(got, `"ok"`) {
			t.Fatal(got)
		}
	}
	members := func() string { return ask("GET", "/v1/rooms/loose/members", "") }
	for until := time.Now().Add(30 * time.Second); members() != `{"room":"loose","count":1,"members":["ann"],"stored":false}`; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the servers do not hear each other: %s", members())
		}
	}
	if got := ask("POST", "/v1/users/ann/messages", `{"message":{"n":1}}`); got != `{"connections":1}` {
		t.Errorf("the message: %s", got)
	}
	if got := next(); got != `{"type":"notice","message":{"n":1}}` {
		t.Errorf("ann got %s", got)
	}
	if got := ask("POST", "/v1/rooms/loose/chats", `{"text":"hello"}`); got != `{}` {
		t.Errorf("the chat: %s", got)
	}
	if got := next(); got != `{"type":"chat","room":"loose","text":"hello"}` {
		t.Errorf("ann got %s", got)
	}
	for n := range 200 { // nobody is in the room at this server: it begins and ends there all the time
		ask("POST", "/v1/rooms/loose/chats", fmt.Sprintf(`{"text":"%d"}`, n))
		if n%20 == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	for n := range 200 {
		if got, want := next(), fmt.Sprintf(`{"type":"chat","room":"loose","text":"%d"}`, n); got != want {
			t.Fatalf("ann got %s, want %s", got, want)
		}
	}
	for _, want := range []string{`{"position":1}`, `{"position":1,"duplicate":true}`} {
		if got := ask("POST", "/v1/rooms/kept/chats", `{"text":"kept"}`, "Idempotency-Key", "till:1"); got != want {
			t.Errorf("the stored chat: %s, want %s", got, want)
		}
	}
	var many struct{ Results []struct{ Position int64 } }
	got := ask("POST", "/v1/rooms/chats", `{"rooms":["kept","loose"],"chat":{"text":"last"}}`)
	if json.Unmarshal([]byte(got), &many) != nil || len(many.Results) != 2 || many.Results[0].Position < 2 { // a repetition may leave a gap
		t.Fatalf("the chat in many rooms: %s", got)
	}
	live := map[string]string{}
	for range 3 {
		var chat struct{ Room, Text string }
		text := next()
		json.Unmarshal([]byte(text), &chat)
		live[chat.Room+" "+chat.Text] = text
	}
	page := ask("GET", "/v1/rooms/kept/chats?after=0", "")
	if want := `{"chats":[` + live["kept kept"] + `,` + live["kept last"] + fmt.Sprintf(`],"next":%d}`, many.Results[0].Position); page != want || live["loose last"] == "" {
		t.Errorf("the history is %s, ann got %s", page, live)
	}
	if got := ask("GET", "/v1/rooms?find=ke", ""); !strings.HasPrefix(got, `{"rooms":[{"room":"kept","count":1,"chats":`) || !strings.HasSuffix(got, `,"stored":true}]}`) {
		t.Errorf("the rooms: %s", got)
	}
	for _, name := range []string{"loose", "kept"} {
		if got := ask("POST", "/v1/rooms/"+name+"/kick", `{"user":"ann"}`); got != `{"connections":1}` {
			t.Errorf("the kick from %s: %s", name, got)
		}
		if got := next(); !strings.Contains(got, `"code":"kicked"`) || !strings.Contains(got, `"room":"`+name+`"`) {
			t.Errorf("ann got %s", got)
		}
	}
	if got := members(); !strings.Contains(got, `"count":0`) {
		t.Errorf("after the kick: %s", got)
	}
	if got := ask("POST", "/v1/rooms/kept/chats", `{"text":"x","user":"ann"}`); !strings.Contains(got, `"forbidden"`) {
		t.Errorf("a chat as somebody else: %s", got)
	}
}
