package spec

// maxPoints are the points of /v1/overview: fifteen minutes.
const maxPoints = 900

// overviewRoute is the request of consoles.
func overviewRoute() Route {
	points := func(name, description string) Field {
		return required(name, listOf(integer("of one second"), 0, maxPoints, description))
	}
	return Route{Method: "GET", Path: "/v1/overview", Name: "getOverview", Right: "metrics server:*",
		Summary: "Tells what this server has done in the last 15 minutes, second by second, and the state of its database.",
		Query: Fields{optional("after", atLeast(0, "only the points after this time, in seconds since 1970: that of the last point which the client has")).withDefault(0),
			optional("worst", oneOfTexts("look for the worst group and queue, too. While somebody asks for them, the server looks at 20 streams, with at most 100 groups each, and at 20 queues each 5 s, in turn", "true"))},
		Answer: objectOf(false,
			optional("version", text("the version of this server")),
			optional("node", text("the name of this server in its cluster")),
			required("started", moment("when it began")),
			required("closed", boolean("true: a caller needs a token and rights (closed mode). False: everybody may do everything")),
			required("points", objectOf(false,
				points("time", "when each point was taken, in seconds since 1970. Times rise; there may be gaps"),
				points("connections", "WebSocket connections that were open"),
				points("stored", "messages and events stored, for each second"),
				points("chats", "chats taken, for each second"),
				points("ingested", "messages taken by /ws/ingest, for each second"),
				points("delivered", "messages sent to subscribers and consumers, for each second"),
				points("settled", "deliveries settled, for each second"),
				points("room_deliveries", "chats sent to members of rooms, for each second"),
				points("missed", "chats that slow members of rooms missed, for each second"),
				points("rate_limited", "messages and requests over a rate, for each second"),
				points("publish_p50_us", "the time from a publish or enqueue to its commit, in microseconds: half were faster. 0: there were none. Under load some are measured"),
				points("publish_p99_us", "likewise: 99 % were faster"),
				points("memory_bytes", "the memory that the server had from the system"),
				points("unsent_bytes", "answers and messages that clients on WebSockets had not taken yet"),
				points("group_lag", "what the worst group that is known had still to read; -1 while nobody asked for it")).said("one list for each figure; all have one length. Totals are those of this server since it began")),
			optional("group", objectOf(false, required("stream", text("its stream")), required("group", text("its name")),
				required("lag", atLeast(0, "positions that it has still to read"))).said("with worst: the group that has the most to read, of those that the server has looked at and the caller may see")),
			optional("queue", objectOf(false, required("queue", text("its name")), required("ready", atLeast(0, "not claimed yet")), required("dead", atLeast(0, "dead letters")),
				required("oldest_ms", atLeast(0, "the age of the oldest message that is neither done nor dead, in milliseconds")), required("paused", boolean("it is paused"))).said("with worst: likewise the queue in which a message has waited the longest")),
			optional("database", objectOf(false,
				required("reachable", boolean("it has answered within 2 s. If not, only its connections are known")),
				optional("version", text("the version of PostgreSQL")),
				optional("latency_us", atLeast(1, "how long it took to answer, in microseconds")),
				optional("size_bytes", atLeast(0, "the size of the database, at most a minute old")),
				optional("wal_bytes_per_second", atLeast(0, "how fast its log grows, over the last seconds")),
				required("standbys", atLeast(0, "servers that get its log now")),
				required("connections", atLeast(0, "connections of this server to it that are open")),
				required("max_connections", atLeast(0, "the most that there may be"))).said("the state of the database, at most 5 s old")))}
}
