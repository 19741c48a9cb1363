package spec

// AsyncAPI returns the description of /ws and /ws/chat, as AsyncAPI 3. version is that of the server.
func AsyncAPI(version string) []byte {
	return document(object{
		{"asyncapi", "3.0.0"},
		{"info", object{
			{"title", "Tidewire /ws"}, {"version", versionOr(version)},
			{"description", "Streams, queues, events and rooms over one WebSocket. All messages are JSON objects with a type. A request with an id gets exactly one answer with the same id: ok or error. " +
				"With the subprotocol tidewire.v1.cbor, binary messages are CBOR with the same fields. " + ignoreUnknown + " " + limitsNote +
				" The schemas have only keywords that mean the same in the drafts 7 and 2020-12 of JSON Schema."},
			{"license", object{{"name", "MIT"}}},
		}},
		{"defaultContentType", "application/json"},
		{"servers", object{{"server", object{{"host", "{host}"}, {"protocol", "ws"}, {"description", "wss with a certificate"},
			{"variables", object{{"host", object{{"default", "localhost:8080"}}}}}}}}},
		{"channels", object{{"ws", channel("/ws", false)}, {"chat", channel("/ws/chat", true)}}},
		{"operations", operations()},
		{"components", object{{"messages", messages()}, {"schemas", schemas()}}},
	})
}

// OkName and PushName name messages of a server in the document. Those of clients are named by their type.
func OkName(request string) string { return request + ".ok" }
func PushName(kind string) string  { return "server." + kind }

func toMessage(name string) object {
	return object{{"$ref", "#/components/messages/" + name}}
}

func toChannelMessage(channel, name string) object {
	return object{{"$ref", "#/channels/" + channel + "/messages/" + name}}
}

// channel has all messages of an endpoint. chat: it is the one of rooms alone.
func channel(address string, chat bool) object {
	var all object
	for _, r := range Requests() {
		if chat && !r.Rooms && r.Type != "auth" {
			continue
		}
		all = append(all, member{r.Type, toMessage(r.Type)})
		if r.Ok() != nil {
			all = append(all, member{OkName(r.Type), toMessage(OkName(r.Type))})
		}
	}
	for _, p := range Pushes() {
		if chat && p.Chat || !chat && p.Session {
			all = append(all, member{PushName(p.Type), toMessage(PushName(p.Type))})
		}
	}
	return object{{"address", address}, {"messages", all}, {"bindings", object{{"ws", object{{"method", "GET"}}}}}}
}

func operations() (all object) {
	for _, r := range Requests() {
		o := object{
			{"action", "receive"}, {"channel", object{{"$ref", "#/channels/ws"}}}, {"summary", r.Summary},
			{"messages", []any{toChannelMessage("ws", r.Type)}},
		}
		if r.Right != "" {
			o = append(o, member{"description", "Right: " + r.Right + "."})
		}
		if r.Ok() != nil {
			o = append(o, member{"reply", object{{"channel", object{{"$ref", "#/channels/ws"}}},
				{"messages", []any{toChannelMessage("ws", OkName(r.Type)), toChannelMessage("ws", PushName(ErrorType))}}}})
		}
		all = append(all, member{r.Type, o})
	}
	for _, p := range Pushes() {
		on := "ws"
		if !p.Session {
			on = "chat"
		}
		all = append(all, member{PushName(p.Type), object{
			{"action", "send"}, {"channel", object{{"$ref", "#/channels/" + on}}}, {"summary", p.Summary},
			{"messages", []any{toChannelMessage(on, PushName(p.Type))}},
		}})
	}
	return all
}

// messages are all messages of both directions.
func messages() (all object) {
	add := func(name, title, summary string, payload *Schema, examples ...Example) {
		m := object{{"name", name}, {"title", title}, {"summary", summary}}
		if len(payload.Properties) > 1 && payload.Properties[1].Name == "id" {
			m = append(m, member{"correlationId", object{{"location", "$message.payload#/id"}}})
		}
		if len(examples) > 0 {
			var shown []object
			for _, e := range examples {
				shown = append(shown, object{{"name", e.Name}, {"payload", e.Payload}})
			}
			m = append(m, member{"examples", shown})
		}
		all = append(all, member{name, append(m, member{"payload", payload})})
	}
	for _, r := range Requests() {
		add(r.Type, r.Type, r.Summary, r.Schema(), r.Examples()...)
		if ok := r.Ok(); ok != nil {
			add(OkName(r.Type), "ok", ok.Description, ok)
		}
	}
	for _, p := range Pushes() {
		add(PushName(p.Type), p.Type, p.Summary, p.Schema())
	}
	return all
}
