const std = @import("std");
const Allocator = std.mem.Allocator;
const Value = std.json.Value;

/// A message of a client, with the fields that the server uses. A chat is
/// passed on as its original bytes.
pub const Message = struct {
    kind: Kind,
    /// Null if the message names none.
    room: ?[]const u8,
    ts: Value,

    pub const Kind = enum { join, chat, leave, ping, pong };

    /// Returns null for malformed messages and unknown types. All memory of the
    /// message belongs to the arena or to text.
    pub fn parse(arena: Allocator, text: []const u8) ?Message {
        const fields = std.json.parseFromSliceLeaky(Fields, arena, text, .{
            .ignore_unknown_fields = true,
            .duplicate_field_behavior = .use_last,
            .parse_numbers = false, // a ts goes back as it was written
        }) catch return null;
        const name = switch (fields.type) {
            .string => |name| name,
            else => return null,
        };
        const kind = std.meta.stringToEnum(Kind, name) orelse return null;
        if (kind == .chat and fields.text != .string) return null;
        return switch (fields.room) {
            .null => .{ .kind = kind, .room = null, .ts = fields.ts },
            .string => |room| .{ .kind = kind, .room = room, .ts = fields.ts },
            else => null,
        };
    }
};

/// The fields are Values, since std.json would accept an array of numbers as a string.
const Fields = struct {
    type: Value,
    room: Value = .null,
    text: Value = .null,
    ts: Value = .null,
};

/// The answer to a ping.
pub fn pong(gpa: Allocator, ts: Value) error{OutOfMemory}![]u8 {
    return std.json.Stringify.valueAlloc(gpa, .{ .type = "pong", .ts = ts }, .{});
}

/// The heartbeat, with a time in milliseconds since 1970.
pub fn ping(gpa: Allocator, ts: i64) error{OutOfMemory}![]u8 {
    return std.json.Stringify.valueAlloc(gpa, .{ .type = "ping", .ts = ts }, .{});
}

fn expectRoom(kind: Message.Kind, room: ?[]const u8, text: []const u8) !void {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    const m = Message.parse(arena.allocator(), text) orelse return error.Refused;
    try std.testing.expectEqual(kind, m.kind);
    try std.testing.expectEqualDeep(room, m.room);
}

test "types and rooms" {
    try expectRoom(.join, null, "{\"type\":\"join\",\"user\":\"u\"}");
    try expectRoom(.join, null, "{\"room\":null,\"type\":\"join\"}");
    try expectRoom(.leave, "", " {\"type\":\"leave\",\"room\":\"\"}");
    try expectRoom(.chat, "a\"b", "{\"type\":\"ch\\u0061t\",\"room\":\"a\\\"b\",\"text\":\"hi\",\"more\":[{}]}");
    try expectRoom(.pong, null, "{\"type\":\"pong\"}");
}

test "what is malformed or unknown is refused" {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    for ([_][]const u8{
        "",                                                     "{",                     "null",
        "[]",                                                   "{}",                    "{\"type\":1}",
        "{\"type\":\"sing\"}",                                  "{\"type\":\"chat\"}",   "{\"type\":\"chat\",\"text\":[104,105]}",
        "{\"type\":\"join\",\"room\":7}",                       "{\"type\":\"pong\"} x", "{\"type\":\"leave\",\"room\":[\"r\"]}",
        "{\"type\":\"chat\",\"text\":" ++ "[" ** 10_000 ++ "}",
    }) |text| {
        if (Message.parse(arena.allocator(), text) != null) {
            std.debug.print("accepted {s}\n", .{text});
            return error.Accepted;
        }
    }
}

test "a pong has the ts of its ping as it was written" {
    var arena: std.heap.ArenaAllocator = .init(std.testing.allocator);
    defer arena.deinit();
    for ([_][2][]const u8{
        .{ "{\"type\":\"ping\",\"ts\":1700000000123}", "{\"type\":\"pong\",\"ts\":1700000000123}" },
        .{ "{\"type\":\"ping\",\"ts\":1e400}", "{\"type\":\"pong\",\"ts\":1e400}" },
        .{ "{\"type\":\"ping\",\"ts\":{\"a\":[\"x\"]}}", "{\"type\":\"pong\",\"ts\":{\"a\":[\"x\"]}}" },
        .{ "{\"type\":\"ping\"}", "{\"type\":\"pong\",\"ts\":null}" },
    }) |case| {
        const m = Message.parse(arena.allocator(), case[0]).?;
        try std.testing.expectEqualStrings(case[1], try pong(arena.allocator(), m.ts));
    }
}
