const std = @import("std");
const WebSocket = std.http.Server.WebSocket;

/// The largest message accepted, in bytes.
pub const max_message = 1 << 20;

/// A buffer larger than this is freed after its message.
const max_kept = 64 << 10;

/// Reads a client's messages. std's readSmallMessage does not support
/// fragments, drops pongs and the code of a close frame, and does not check
/// UTF-8.
pub const FrameReader = struct {
    gpa: std.mem.Allocator,
    in: *std.Io.Reader,
    data: std.ArrayList(u8) = .empty,
    control: [125]u8 = undefined,
    /// The opcode of the message whose fragments are in data.
    unfinished: ?WebSocket.Opcode = null,

    /// The content of a frame. Slices are valid until the next one is read.
    pub const Event = union(enum) {
        text: []const u8,
        binary,
        ping: []const u8,
        pong,
        close: []const u8,
        /// More frames of the message will follow.
        fragment,
    };

    pub const Error = error{ Protocol, TooBig, NotUtf8, OutOfMemory } || std.Io.Reader.Error;

    pub fn deinit(r: *FrameReader) void {
        r.data.deinit(r.gpa);
    }

    /// Reads one frame.
    pub fn next(r: *FrameReader) Error!Event {
        const head = (try r.in.takeArray(2)).*;
        const h0: WebSocket.Header0 = @bitCast(head[0]);
        const h1: WebSocket.Header1 = @bitCast(head[1]);
        if (h0.rsv1 != 0 or h0.rsv2 != 0 or h0.rsv3 != 0 or !h1.mask) return error.Protocol;
        const len: u64 = switch (h1.payload_len) {
            .len16 => try r.in.takeInt(u16, .big),
            .len64 => try r.in.takeInt(u64, .big),
            else => |short| @intFromEnum(short),
        };
        const mask = (try r.in.takeArray(4)).*;
        switch (h0.opcode) {
            .text, .binary, .continuation => return r.nextData(h0, len, mask),
            .ping, .pong, .connection_close => {},
            _ => return error.Protocol,
        }

        if (!h0.fin or len > r.control.len) return error.Protocol;
        const payload = r.control[0..@intCast(len)];
        try r.fill(payload, mask);
        return switch (h0.opcode) {
            .ping => .{ .ping = payload },
            .pong => .pong,
            else => .{ .close = payload },
        };
    }

    fn nextData(r: *FrameReader, h0: WebSocket.Header0, len: u64, mask: [4]u8) Error!Event {
        if ((h0.opcode == .continuation) != (r.unfinished != null)) return error.Protocol;
        const kind = r.unfinished orelse kind: {
            if (r.data.capacity > max_kept) r.data.clearAndFree(r.gpa);
            r.data.clearRetainingCapacity();
            break :kind h0.opcode;
        };
        if (len > max_message - r.data.items.len) return error.TooBig;
        try r.fill(try r.data.addManyAsSlice(r.gpa, @intCast(len)), mask);
        r.unfinished = if (h0.fin) null else kind;
        if (!h0.fin) return .fragment;
        if (kind == .binary) return .binary;
        if (!std.unicode.utf8ValidateSlice(r.data.items)) return error.NotUtf8;
        return .{ .text = r.data.items };
    }

    fn fill(r: *FrameReader, payload: []u8, mask: [4]u8) std.Io.Reader.Error!void {
        try r.in.readSliceAll(payload);
        for (payload, 0..) |*byte, i| byte.* ^= mask[i % 4];
    }
};

/// A client's frame, its payload not disguised by the mask.
fn frame(comptime b0: u8, comptime payload: []const u8) *const [6 + payload.len]u8 {
    return &([_]u8{ b0, 0x80 | payload.len, 0, 0, 0, 0 } ++ payload[0..payload.len].*);
}

fn reader(in: *std.Io.Reader) FrameReader {
    return .{ .gpa = std.testing.allocator, .in = in };
}

test "a masked text" {
    var in: std.Io.Reader = .fixed("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"); // of RFC 6455, 5.7
    var frames = reader(&in);
    defer frames.deinit();
    try std.testing.expectEqualStrings("Hello", (try frames.next()).text);
    try std.testing.expectError(error.EndOfStream, frames.next());
}

test "fragments with a ping in between" {
    var in: std.Io.Reader = .fixed(frame(0x01, "ab\xc3") ++ frame(0x89, "now") ++ frame(0x00, "\xbc") ++ frame(0x80, "d") ++ frame(0x81, "e"));
    var frames = reader(&in);
    defer frames.deinit();
    try std.testing.expectEqual(.fragment, try frames.next());
    try std.testing.expectEqualStrings("now", (try frames.next()).ping);
    try std.testing.expectEqual(.fragment, try frames.next());
    try std.testing.expectEqualStrings("abüd", (try frames.next()).text);
    try std.testing.expectEqualStrings("e", (try frames.next()).text);
}

test "other frames" {
    var in: std.Io.Reader = .fixed(frame(0x82, "\xff") ++ frame(0x8a, "") ++ frame(0x88, "\x03\xe8bye"));
    var frames = reader(&in);
    defer frames.deinit();
    try std.testing.expectEqual(.binary, try frames.next());
    try std.testing.expectEqual(.pong, try frames.next());
    try std.testing.expectEqualStrings("\x03\xe8bye", (try frames.next()).close);
}

test "lengths of 16 and 64 bits" {
    const long = "x" ** 300;
    var in: std.Io.Reader = .fixed("\x81\xfe\x01\x2c\x00\x00\x00\x00" ++ long ++ "\x81\xff\x00\x00\x00\x00\x00\x00\x01\x2c\x00\x00\x00\x00" ++ long ++
        "\x81\xff\x00\x00\x00\x00\x00\x10\x00\x01\x00\x00\x00\x00");
    var frames = reader(&in);
    defer frames.deinit();
    try std.testing.expectEqualStrings(long, (try frames.next()).text);
    try std.testing.expectEqualStrings(long, (try frames.next()).text);
    try std.testing.expectError(error.TooBig, frames.next());
}

test "what breaks the protocol" {
    inline for (.{
        .{ "\x81\x01x", error.Protocol }, // no mask
        .{ frame(0xc1, "x"), error.Protocol }, // a reserved bit
        .{ frame(0x80, "x"), error.Protocol }, // continues nothing
        .{ frame(0x09, "x"), error.Protocol }, // a ping in parts
        .{ frame(0x83, "x"), error.Protocol }, // an unknown opcode
        .{ frame(0x81, "\xff"), error.NotUtf8 },
    }) |case| {
        var in: std.Io.Reader = .fixed(case[0]);
        var frames = reader(&in);
        defer frames.deinit();
        try std.testing.expectError(case[1], frames.next());
    }
}
