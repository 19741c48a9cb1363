package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidewire/tidewire/internal/budget"
	"github.com/tidewire/tidewire/internal/engine"
	"github.com/tidewire/tidewire/internal/gateway"
	"github.com/tidewire/tidewire/internal/testkit"
)

// serveRooms serves everything, with stored rooms.
func serveRooms(t *testing.T, nodes gateway.Nodes) (*memoryStore, *gateway.Server, client) {
	return serveRoomsIn(t, nodes, nil)
}

// serveRoomsIn does that, and counts the memory in an account.
func serveRoomsIn(t *testing.T, nodes gateway.Nodes, account *budget.Budget) (*memoryStore, *gateway.Server, client) {
	store := newMemoryStore(t)
	server, addr := serve(t, gateway.Config{
		Engine: engine.Engine{Rooms: store, Streams: newFakeStreams(t), Queues: newFakeQueues(t), Events: newFakeEvents()},
		Chat:   gateway.ChatConfig{StoredRooms: []string{"kept-*"}}, Nodes: nodes, MaxMessage: 10_000, Budget: account,
	})
	return store, server, client{t, addr}
}

// TestAPI_Chats: a chat that comes by HTTP reaches all members, as a chat of that room.
func TestAPI_Chats(t *testing.T) {
	t.Parallel()
	_, _, c := serveRooms(t, nil)
	a, b := connect(t, c.addr), connect(t, c.addr)
	for _, w := range []*wire{a, b} {
		w.ask(`{"type":"join","room":"a/\"é","id":1}`, `{"id":1,"type":"ok"}`)
		w.ask(`{"type":"join","room":"kept-1","id":2}`, `{"history":0,"id":2,"position":0,"type":"ok"}`)
	}
	loose := "/v1/rooms/a%2F%22%C3%A9/chats"
	for _, said := range []struct{ body, heard string }{
		{`{"text":"x"}`, `"text":"x"}`},
		{` { "id":7, "text" : "<x>" , "type":"chat", "more":{"id":1,"type":[]} } `, `"text" : "<x>", "more":{"id":1,"type":[]} }`},
		{`{"room":"a/\"é","user":"ann","text":"x","client":"c","sequence":{},"id":null}`, `"user":"ann","text":"x","client":"c","sequence":{}}`},
	} {
		c.want("POST", loose, said.body, 200, `{}`)
		for _, w := range []*wire{a, b} {
			w.want(`{"type":"chat","room":"a/\"é",` + said.heard)
		}
	}
	c.want("POST", "/v1/rooms/nobody/chats", `{"text":"x"}`, 200, `{}`)
	c.want("POST", "/v1/rooms/kept-1/chats", `{"text":"one"}`, 200, `{"position":1}`)
	c.want("POST", "/v1/rooms/kept-1/chats", `{"text":"two","client":"till","sequence":3}`, 200, `{"position":2}`)
	if code, text := c.do("POST", "/v1/rooms/kept-1/chats", `{"text":"two"}`, "Idempotency-Key", "till:3"); code != 200 || text != `{"position":2,"duplicate":true}` {
		t.Errorf("a repetition got %d %s", code, text)
	}
	c.want("POST", "/v1/rooms/kept-2/chats", `{"text":"nobody there"}`, 200, `{"position":3}`)
	for _, w := range []*wire{a, b} {
		w.want(`{"type":"chat","room":"kept-1","text":"one","position":1}`, `{"type":"chat","room":"kept-1","text":"two","position":2}`)
		w.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	}
}

// TestAPI_ChatsAreChecked: what is no chat is refused, with the name of the field.
func TestAPI_ChatsAreChecked(t *testing.T) {
	t.Parallel()
	store, _, c := serveRooms(t, nil)
	member := connect(t, c.addr)
	member.ask(`{"type":"join","room":"a","id":1}`, `{"id":1,"type":"ok"}`)
	refused := func(method, path, body, want string, headers ...string) {
		t.Helper()
		code, text := c.do(method, path, body, headers...)
		var got struct {
			Error struct{ Code, Message string }
		}
		json.Unmarshal([]byte(text), &got)
		if answer := fmt.Sprint(code, " ", got.Error.Code, " ", got.Error.Message); !strings.HasPrefix(answer, want) {
			t.Errorf("%s %s %.60s: %s, want %s", method, path, body, answer, want)
		}
	}
	for body, want := range map[string]string{
		``:                                       "400 malformed",
		`{"text":"x"`:                            "400 malformed not JSON",
		"{\"text\":\"\xff\"}":                    "400 malformed not UTF-8",
		`{}`:                                     "400 malformed text: want a string",
		`{"text":null}`:                          "400 malformed text",
		`{"text":"x","Type":"gap"}`:              "400 malformed type",
		`{"text":"x","room":"b"}`:                "400 malformed room",
		`{"text":"x","id":{}}`:                   "400 malformed id",
		`{"text":"x","position":1,"position":2}`: "400 malformed position",
		`{"text":"` + strings.Repeat("x", 9980) + `"}`:                               "413 too_large",
		`{"text":"x","user":"` + strings.Repeat("x", 129) + `"}`:                     "400 name_too_long",
		`{"text":"x","a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`: "400 malformed nested too deeply",
	} {
		refused("POST", "/v1/rooms/a/chats", body, want, "Content-Type", "application/json")
	}
	refused("POST", "/v1/rooms/a/chats", `{"text":"x"}`, "415", "Content-Type", "text/plain")
	refused("POST", "/v1/rooms/a/chats", `{"text":"x"}`, "400 room_not_stored Idempotency-Key", "Idempotency-Key", "a:1")
	refused("POST", "/v1/rooms/kept-1/chats", `{"text":"x"}`, "400 invalid Idempotency-Key", "Idempotency-Key", "a")
	refused("POST", "/v1/rooms/kept-1/chats", `{"text":"x","client":"a","sequence":1}`, "400 invalid client", "Idempotency-Key", "a:1")
	for fields, want := range map[string]string{
		`"client":"a"`: "400 invalid sequence", `"client":7,"sequence":1`: "400 malformed client", `"time":1`: "400 malformed time", `"position":1`: "400 malformed position",
	} {
		refused("POST", "/v1/rooms/kept-1/chats", `{"text":"x",`+fields+`}`, want)
	}
	refused("POST", "/v1/rooms/%FF/chats", `{"text":"x"}`, "400 invalid_name")
	refused("GET", "/v1/rooms/a%00/chats", "", "400 invalid_name")
	refused("GET", "/v1/rooms/"+strings.Repeat("x", 129)+"/members", "", "400 name_too_long")
	refused("GET", "/v1/rooms/a/chats", "", "400 room_not_stored")
	for query, want := range map[string]string{
		"after=x": "400 invalid_parameter after", "after=-1": "400 invalid_parameter after", "limit=0": "400 invalid_parameter limit", "limit=1001": "400 invalid_parameter limit",
		"last=0": "400 invalid_parameter last", "last=1001": "400 invalid_parameter last", "last=1&after=1": "400 invalid_parameter last", "last=1&limit=1": "400 invalid_parameter last", "last=1&before=0": "400 invalid_parameter before", "before=1": "400 invalid_parameter before",
		"after=1": "410 history_lost",
	} {
		refused("GET", "/v1/rooms/kept-1/chats?"+query, "", want)
	}
	refused("DELETE", "/v1/rooms/a/chats", "", "405")
	refused("GET", "/v1/rooms/chats", "", "405")
	for body, want := range map[string]string{
		`{"rooms":["a"]}`:                               "400 malformed chat",
		`{"chat":{"text":"x"}}`:                         "400 malformed rooms",
		`{"rooms":[],"chat":{"text":"x"}}`:              "400 malformed rooms",
		`{"rooms":["a",""],"chat":{"text":"x"}}`:        "400 malformed rooms[1]",
		`{"rooms":["a","a"],"chat":{"text":"x"}}`:       "400 malformed rooms[1]: want each room once",
		`{"rooms":["a"],"chat":{"text":"x"},"Chat":{}}`: "400 unknown_field",
		`{"rooms":["a"],"chat":{"text":"x"},"chat":{}}`: "400 malformed chat: want this field once",
	} {
		refused("POST", "/v1/rooms/chats", body, want)
	}
	refused("POST", "/v1/rooms/chats", `{"rooms":["a"],"chat":{"text":"x"}}`, "400 invalid Idempotency-Key", "Idempotency-Key", "a:1")
	refused("POST", "/v1/users/bob/messages", `{"message":{}}`, "404 not_served")
	member.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`) // it has heard nothing
	if n := store.count(); n > 0 {
		t.Errorf("%d are stored", n)
	}
}

// TestAPI_ManyRooms: one chat goes to many rooms, with a result for each.
func TestAPI_ManyRooms(t *testing.T) {
	t.Parallel()
	store, _, c := serveRooms(t, nil)
	member := connect(t, c.addr)
	for _, name := range []string{"a", "b"} {
		member.ask(`{"type":"join","room":"`+name+`","id":1}`, `{"id":1,"type":"ok"}`)
	}
	c.want("POST", "/v1/rooms/chats", `{"rooms":["a","kept-1","nobody","kept-2"],"chat":{"text":"x"}}`, 200,
		`{"results":[{"room":"a"},{"room":"kept-1","position":1},{"room":"nobody"},{"room":"kept-2","position":2}]}`)
	member.want(`{"type":"chat","room":"a","text":"x"}`)
	c.want("POST", "/v1/rooms/chats", `{"rooms":["kept-1","b"],"chat":{"text":"x","client":"c","sequence":1}}`, 200,
		`{"results":[{"room":"kept-1","error":{"code":"invalid","message":"client: want none in a stored room: send a request for each","retryable":false}},{"room":"b"}]}`)
	member.want(`{"type":"chat","room":"b","text":"x","client":"c","sequence":1}`)
	code, text := c.do("POST", "/v1/rooms/chats", `{"rooms":[`+strings.Join(numbered(500, `"kept-%d"`), ",")+`],"chat":{"text":"`+strings.Repeat("y", 3000)+`"}}`)
	if code != 200 || strings.Count(text, `"position":`) != 500 {
		t.Errorf("%d %.300s", code, text)
	}
	store.change(func() { store.fail = errors.New("disk full") })
	c.want("POST", "/v1/rooms/chats", `{"rooms":["kept-1","a"],"chat":{"text":"z"}}`, 200,
		`{"results":[{"room":"kept-1","error":{"code":"not_stored","message":"the message could not be stored","retryable":true}},{"room":"a"}]}`)
	c.want("POST", "/v1/rooms/kept-1/chats", `{"text":"z"}`, 500, `{"error":{"code":"not_stored","message":"the message could not be stored","retryable":true}}`)
}

// TestAPI_RoomHistory: the chats of a stored room are read in pages.
func TestAPI_RoomHistory(t *testing.T) {
	t.Parallel()
	store, _, c := serveRooms(t, nil)
	store.put("kept-1", "no chat")
	for n := 2; n <= 7; n++ {
		store.put(fmt.Sprintf("kept-%d", n%2), fmt.Sprintf(`{"type":"chat","text":"%d"}`, n))
	}
	page := func(next int, positions ...int) string {
		var chats []string
		for _, p := range positions {
			chats = append(chats, fmt.Sprintf(`{"type":"chat","text":"%d","position":%d}`, p, p))
		}
		return fmt.Sprintf(`{"chats":[%s],"next":%d}`, strings.Join(chats, ","), next)
	}
	for query, want := range map[string]string{
		"":                 page(7, 3, 5, 7),
		"?after=0&limit=1": page(1),
		"?after=1&limit=1": page(3, 3),
		"?after=4":         page(7, 5, 7),
		"?after=7":         page(7),
		"?last=2":          page(7, 5, 7),
		"?last=1&before=7": page(5, 5),
		"?last=9&before=5": page(3, 3),
		"?last=9&before=3": page(1), // what is no chat
		"?last=1000":       page(7, 3, 5, 7),
	} {
		c.want("GET", "/v1/rooms/kept-1/chats"+query, "", 200, want)
	}
	c.want("GET", "/v1/rooms/kept-9/chats?last=5", "", 200, page(7))
	store.change(func() { store.broken = errors.New("away") })
	c.want("GET", "/v1/rooms/kept-1/chats", "", 503, `{"error":{"code":"unavailable","message":"this cannot be read now; try again later","retryable":true}}`)
}

// others are the other servers of a cluster: they answer, or do not.
type others struct {
	servers map[string]*gateway.Server // nil does not answer
}

// hanging are others, of which one is not heard any more.
type hanging struct{ others }

func (hanging) Unheard() []string { return []string{"hung"} }

// TestAPI_Unheard: a server that hangs is named, also when it is not asked any more.
func TestAPI_Unheard(t *testing.T) {
	t.Parallel()
	_, _, c := serveRooms(t, hanging{others{map[string]*gateway.Server{"deaf": nil}}})
	c.want("POST", "/v1/rooms/a/kick", `{"user":"ann"}`, 200, `{"connections":0,"silent":["deaf","hung"]}`)
	c.want("GET", "/v1/rooms/a/members", "", 200, `{"room":"a","count":0,"members":[],"stored":false,"silent":["deaf","hung"]}`)
}

func (o others) Name() string { return "here" }
func (o others) Heard() (names []string) {
	for name := range o.servers {
		names = append(names, name)
	}
	return names
}

func (o others) Unheard() []string { return nil }

func (o others) Ask(ctx context.Context, node string, question []byte) ([]byte, error) {
	if s := o.servers[node]; s != nil {
		return s.Answer(ctx, question), nil
	}
	return nil, errors.New("no answer")
}

func (o others) Exist(context.Context, []string) (map[string]bool, error) { return nil, nil }
func (o others) List(context.Context) ([]gateway.NodeInfo, error)         { return nil, nil }

// TestAPI_Notify: a message to a user reaches all its connections on /ws and /ws/chat, on all servers, and no other connection.
func TestAPI_Notify(t *testing.T) {
	t.Parallel()
	there := serveClosed(t, nil)
	here := serveClosed(t, func(cfg *gateway.Config) { cfg.Nodes = others{map[string]*gateway.Server{"there": there.server}} })
	backend := tokenOf(t, "backend", time.Hour, "notify user:*")
	notify := func(user, body string) (int, string) {
		return client{t, here.addr}.do("POST", "/v1/users/"+user+"/messages", body, "Authorization", "Bearer "+backend)
	}
	if code, text := notify("ann", `{"message":{}}`); code != 200 || text != `{"connections":0}` {
		t.Errorf("nobody is there: %d %s", code, text)
	}
	ann := tokenOf(t, "ann", time.Hour)
	first := connect(t, here.addr) // names itself in a message
	send(t, first.socket, `{"type":"auth","id":1,"token":"`+ann+`"}`)
	first.next()
	all := []*wire{first, here.as("/ws", ann), here.as("/ws/chat", ann), there.as("/ws", ann)}
	bob := here.as("/ws", tokenOf(t, "bob", time.Hour))
	for _, w := range append(all[1:], bob) {
		w.ask(`{"type":"ping","ts":0}`, `{"ts":0,"type":"pong"}`)
	}
	for _, bad := range []struct{ body, want string }{
		{`{}`, "malformed"}, {`{"message":"x"}`, "malformed"}, {`{"message":null}`, "malformed"}, {`{"message":{},"type":"x"}`, "unknown_field"}, {`{"message":{},"message":{}}`, "malformed"}, {`[]`, "malformed"},
	} {
		if code, text := notify("ann", bad.body); code != 400 || !strings.Contains(text, bad.want) {
			t.Errorf("%s: %d %s", bad.body, code, text)
		}
	}
	if code, text := notify("ann", `{"message": {"n":[1, "<é>"]} }`); code != 200 || text != `{"connections":4}` {
		t.Errorf("got %d %s, want 4 connections", code, text)
	}
	for _, w := range all {
		w.want(`{"type":"notice","message":{"n":[1, "<é>"]}}`)
		w.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	}
	bob.ask(`{"type":"ping","ts":1}`, `{"ts":1,"type":"pong"}`)
	all[1].Abort()
	testkit.Eventually(t, "the ended connection is not counted", func() bool { _, text := notify("ann", `{"message":{}}`); return text == `{"connections":3}` })
}

// TestAnswer_MalformedQuestions of another server get no answer, and do no harm.
func TestAnswer_MalformedQuestions(t *testing.T) {
	t.Parallel()
	_, server, _ := serveRooms(t, nil)
	for _, question := range []string{"", "m", "u", "u\x00", "u\x05ann", "u\xff", "x", "{", "{}x"} {
		if answer := server.Answer(t.Context(), []byte(question)); len(answer) > 0 {
			t.Errorf("%q got %s", question, answer)
		}
	}
	if answer := server.Answer(t.Context(), []byte("u\x03ann{}")); string(answer) != `{"connections":0}` {
		t.Errorf("a message to nobody got %s", answer)
	}
}
