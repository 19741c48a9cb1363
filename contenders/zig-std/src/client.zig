const std = @import("std");
const net = std.net;
const posix = std.posix;
const WebSocket = std.http.Server.WebSocket;
const Bucket = @import("bucket.zig").Bucket;
const FrameReader = @import("frames.zig").FrameReader;
const message = @import("message.zig");
const Outgoing = @import("queue.zig").Outgoing;
const Queue = @import("queue.zig").Queue;
const Server = @import("server.zig").Server;
const Stats = @import("stats.zig").Stats;
const setReadTimeout = @import("server.zig").setReadTimeout;
const milliseconds = @import("server.zig").milliseconds;
const stack_size = @import("server.zig").stack_size;
const waitReadable = @import("server.zig").waitReadable;

/// The room of messages that name none. Everybody may send to it.
const public = "public";

const max_rooms = 100;

/// The longest name of a room, in bytes.
const max_name = 128;

/// How long a closing handshake may take.
const closing = std.time.ns_per_s;

/// The maximum memory, in bytes, that is kept from one parsed message to the next.
const max_arena = 64 << 10;

/// Why reading has ended.
const End = union(enum) {
    /// The connection is broken.
    gone,
    /// The client has sent a close frame with this payload.
    closed: []const u8,
    /// The server closes the connection, with this code.
    close: u16,
};

/// Serves a WebSocket until it ends, with this thread and a writing thread.
pub fn serve(server: *Server, stream: net.Stream, ws: WebSocket) !void {
    var c: Client = .{
        .server = server,
        .stream = stream,
        .ws = ws,
        .frames = .{ .gpa = server.gpa, .in = ws.input },
        .arena = .init(server.gpa),
        .bucket = .init(server.settings.rate_limit, server.settings.rate_burst, server.now()),
        .heard = server.now(),
        .next_ping = server.now() + server.settings.ping_interval,
    };
    defer c.deinit();
    const writing = try std.Thread.spawn(.{ .stack_size = stack_size }, Client.write, .{&c});
    defer writing.join();
    defer posix.shutdown(stream.handle, .both) catch {}; // ends a blocked write
    defer c.queue.close();

    try setReadTimeout(stream, server.settings.pong_timeout);
    const end = c.read();
    c.leaveAll();
    c.finish(end);
}

const Client = struct {
    server: *Server,
    stream: net.Stream,
    ws: WebSocket,
    frames: FrameReader,
    queue: Queue = .{},
    /// Set when the writing thread has ended.
    written: std.Thread.ResetEvent = .{},

    // Only the reading thread uses the fields below.

    /// Holds one message at a time.
    arena: std.heap.ArenaAllocator,
    /// This map owns the names.
    rooms: std.StringArrayHashMapUnmanaged(void) = .empty,
    bucket: Bucket,
    /// When data last arrived.
    heard: u64,
    next_ping: u64,

    fn deinit(c: *Client) void {
        c.leaveAll();
        c.rooms.deinit(c.server.gpa);
        c.queue.deinit(c.server.gpa);
        c.frames.deinit();
        c.arena.deinit();
    }

    /// Reads until the connection ends, with a ping at each interval.
    fn read(c: *Client) End {
        while (true) {
            if (c.wait() catch return .gone) |end| return end;
            const event = c.frames.next() catch |err| return switch (err) {
                error.Protocol => .{ .close = 1002 },
                error.NotUtf8 => .{ .close = 1007 },
                error.TooBig => .{ .close = 1009 },
                error.OutOfMemory => .{ .close = 1011 },
                error.EndOfStream, error.ReadFailed => .gone,
            };
            c.heard = c.server.now();
            const end = switch (event) {
                .text => |text| c.handle(text),
                .binary => c.ignore(),
                .ping => |payload| c.answer(.pong, payload),
                .pong, .fragment => null,
                .close => |payload| End{ .closed = payload },
            } catch return .{ .close = 1011 }; // out of memory
            if (end) |e| return e;
        }
    }

    /// Waits until there is something to read, and sends pings meanwhile.
    /// Returns the reason if reading must end.
    fn wait(c: *Client) !?End {
        while (c.ws.input.bufferedLen() == 0) {
            const now = c.server.now();
            const silent = c.heard + c.server.settings.pong_timeout;
            if (now >= silent) return .{ .close = 1000 };
            if (now >= c.next_ping) {
                c.next_ping = now + c.server.settings.ping_interval;
                try c.ping();
            }
            switch (try waitReadable(c.server, c.stream, milliseconds(@min(silent, c.next_ping) - now))) {
                .readable => return null,
                .stop => return .{ .close = 1001 },
                .timeout => {},
            }
        }
        return null;
    }

    fn ping(c: *Client) !void {
        const text = try message.ping(c.server.gpa, std.time.milliTimestamp());
        defer c.server.gpa.free(text);
        const out: *Outgoing = try .create(c.server.gpa, .text, text);
        defer out.release(c.server.gpa);
        c.queue.push(out) catch {}; // if it is full, the client has enough to read
    }

    fn handle(c: *Client, text: []const u8) !?End {
        defer _ = c.arena.reset(.{ .retain_with_limit = max_arena });
        const m = message.Message.parse(c.arena.allocator(), text) orelse return c.ignore();
        const room = m.room orelse public;
        return switch (m.kind) {
            .join => if (try c.join(room)) null else c.ignore(),
            .chat => c.say(room, text),
            .leave => c.leave(m.room),
            .ping => c.answer(.text, try message.pong(c.arena.allocator(), m.ts)),
            .pong => null,
        };
    }

    /// Makes the client a member. Returns whether it is one now.
    fn join(c: *Client, room: []const u8) !bool {
        if (c.rooms.contains(room)) return true;
        if (c.rooms.count() >= max_rooms or room.len > max_name) return false;
        const owned = try c.server.gpa.dupe(u8, room);
        errdefer c.server.gpa.free(owned);
        try c.rooms.put(c.server.gpa, owned, {});
        errdefer _ = c.rooms.swapRemove(owned);
        try c.server.rooms.join(owned, &c.queue);
        return true;
    }

    fn say(c: *Client, room: []const u8, text: []const u8) !?End {
        const member = c.rooms.contains(room) or std.mem.eql(u8, room, public) and try c.join(room);
        if (!member) return c.ignore();
        const stats = &c.server.stats;
        if (!c.bucket.take(c.server.now())) {
            Stats.add(&stats.dropped, 1);
            return null;
        }
        const out: *Outgoing = try .create(c.server.gpa, .text, text);
        defer out.release(c.server.gpa);
        out.delivery = true;
        Stats.add(&stats.messages, 1);
        Stats.add(&stats.lost, c.server.rooms.say(room, &c.queue, out));
        return null;
    }

    /// Leaves a room, or all rooms. The connection of a client without rooms is closed.
    fn leave(c: *Client, room: ?[]const u8) ?End {
        if (room) |name| {
            if (c.rooms.fetchSwapRemove(name)) |entry| {
                c.server.rooms.leave(name, &c.queue);
                c.server.gpa.free(entry.key);
            }
        } else c.leaveAll();
        return if (c.rooms.count() == 0) .{ .close = 1000 } else null;
    }

    fn leaveAll(c: *Client) void {
        for (c.rooms.keys()) |name| {
            c.server.rooms.leave(name, &c.queue);
            c.server.gpa.free(name);
        }
        c.rooms.clearRetainingCapacity();
    }

    /// Waits for a free place in the queue. So the server does not read from a
    /// client that reads no answers, and such a client is closed as silent in
    /// the end.
    fn answer(c: *Client, op: WebSocket.Opcode, data: []const u8) !?End {
        const out: *Outgoing = try .create(c.server.gpa, op, data);
        defer out.release(c.server.gpa);
        c.queue.pushWait(out, c.server.settings.pong_timeout) catch return .{ .close = 1000 };
        return null;
    }

    fn ignore(c: *Client) ?End {
        Stats.add(&c.server.stats.ignored, 1);
        return null;
    }

    /// Does the closing handshake, unless the connection is broken.
    fn finish(c: *Client, end: End) void {
        var code: [2]u8 = undefined;
        const payload = switch (end) {
            .gone => return,
            .closed => |payload| payload[0..@min(2, payload.len)],
            .close => |number| payload: {
                std.mem.writeInt(u16, &code, number, .big);
                break :payload &code;
            },
        };
        const out = Outgoing.create(c.server.gpa, .connection_close, payload) catch return;
        defer out.release(c.server.gpa);
        c.queue.pushWait(out, closing) catch return;
        if (end == .close) c.awaitClose();
        c.written.timedWait(closing) catch {};
    }

    /// Reads up to the client's close frame, or until the time limit.
    fn awaitClose(c: *Client) void {
        setReadTimeout(c.stream, closing) catch return;
        const until = c.server.now() + closing;
        while (c.server.now() < until) {
            const event = c.frames.next() catch return;
            if (event == .close) return;
        }
    }

    /// The writing thread. All waiting messages leave in one flush.
    fn write(c: *Client) void {
        defer c.written.set();
        var batch: [64]*Outgoing = undefined;
        while (true) {
            const taken = c.queue.take(&batch);
            if (taken.len == 0) return;
            defer for (taken) |out| out.release(c.server.gpa);
            for (taken) |out| {
                c.ws.writeMessageUnflushed(out.data, out.op) catch return c.broken();
                if (out.delivery) Stats.add(&c.server.stats.deliveries, 1);
                if (out.op == .connection_close) return c.ws.flush() catch {};
            }
            c.ws.flush() catch return c.broken();
        }
    }

    /// Makes the reading thread notice that writing has failed.
    fn broken(c: *Client) void {
        c.queue.close();
        posix.shutdown(c.stream.handle, .both) catch {};
    }
};
