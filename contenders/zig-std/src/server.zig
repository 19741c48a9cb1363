const std = @import("std");
const net = std.net;
const posix = std.posix;
const Rooms = @import("rooms.zig").Rooms;
const Settings = @import("settings.zig").Settings;
const Stats = @import("stats.zig").Stats;
const client = @import("client.zig");

/// The two threads of a connection have little on their stacks except its
/// buffers and its queue.
pub const stack_size = 512 << 10;

const buffer_size = 16 << 10;

/// How long a client may take to send its request.
const patience = 10 * std.time.ns_per_s;

/// The state that all connections share.
pub const Server = struct {
    gpa: std.mem.Allocator,
    settings: Settings,
    stats: Stats = .{},
    rooms: Rooms,
    started: std.time.Instant,
    /// Becomes readable, and stays readable, when the server must stop.
    stop: posix.fd_t,

    mutex: std.Thread.Mutex = .{},
    /// Signalled when no thread is left.
    idle: std.Thread.Condition = .{},
    threads: usize = 0,

    /// Nanoseconds since the start.
    pub fn now(s: *const Server) u64 {
        const instant = std.time.Instant.now() catch unreachable; // it worked at the start
        return instant.since(s.started);
    }

    /// Accepts connections, and starts a thread for each, until the stop or the
    /// end of the duration.
    pub fn accept(s: *Server, listeners: []net.Server) !void {
        while (true) {
            const timeout = try s.remaining() orelse return;
            var fds: [3]posix.pollfd = undefined;
            fds[0] = .{ .fd = s.stop, .events = posix.POLL.IN, .revents = 0 };
            for (listeners, fds[1..][0..listeners.len]) |*listener, *fd| {
                fd.* = .{ .fd = listener.stream.handle, .events = posix.POLL.IN, .revents = 0 };
            }
            _ = try posix.poll(fds[0 .. 1 + listeners.len], timeout);
            if (fds[0].revents != 0) return;
            for (listeners, fds[1..][0..listeners.len]) |*listener, fd| {
                if (fd.revents != 0) s.acceptOne(listener);
            }
        }
    }

    /// Milliseconds until the duration ends, null when it has ended.
    fn remaining(s: *Server) !?i32 {
        if (s.settings.duration == 0) return -1;
        const passed = s.now();
        if (passed >= s.settings.duration) return null;
        return milliseconds(s.settings.duration - passed);
    }

    fn acceptOne(s: *Server, listener: *net.Server) void {
        const connection = listener.accept() catch |err| switch (err) {
            error.ProcessFdQuotaExceeded, error.SystemFdQuotaExceeded, error.SystemResources => {
                return std.Thread.sleep(50 * std.time.ns_per_ms); // some connections will be closed
            },
            else => return, // the client has gone already
        };
        s.mutex.lock();
        s.threads += 1;
        s.mutex.unlock();
        const thread = std.Thread.spawn(.{ .stack_size = stack_size }, serve, .{ s, connection.stream }) catch {
            connection.stream.close();
            s.ended();
            return;
        };
        thread.detach();
    }

    fn ended(s: *Server) void {
        s.mutex.lock();
        defer s.mutex.unlock();
        s.threads -= 1;
        if (s.threads == 0) s.idle.signal();
    }

    /// Waits until all connections have ended, for at most `limit` nanoseconds.
    /// Returns whether they have.
    pub fn drain(s: *Server, limit: u64) bool {
        const end = s.now() + limit;
        s.mutex.lock();
        defer s.mutex.unlock();
        while (s.threads > 0) {
            const left = end -| s.now();
            if (left == 0) return false;
            s.idle.timedWait(&s.mutex, left) catch {};
        }
        return true;
    }
};

/// The thread of a connection.
fn serve(server: *Server, stream: net.Stream) void {
    defer server.ended();
    defer stream.close();
    handle(server, stream) catch {}; // the client has gone
}

/// Answers one HTTP request. A WebSocket is served until it ends.
fn handle(server: *Server, stream: net.Stream) !void {
    var in_buffer: [buffer_size]u8 = undefined;
    var out_buffer: [buffer_size]u8 = undefined;
    var in = stream.reader(&in_buffer);
    var out = stream.writer(&out_buffer);
    try posix.setsockopt(stream.handle, posix.IPPROTO.TCP, posix.TCP.NODELAY, &std.mem.toBytes(@as(c_int, 1)));
    try setReadTimeout(stream, patience);
    if (try waitReadable(server, stream, milliseconds(patience)) != .readable) return;

    var http: std.http.Server = .init(in.interface(), &out.interface);
    var request = try http.receiveHead();
    const target = request.head.target;
    const path = target[0 .. std.mem.indexOfScalar(u8, target, '?') orelse target.len];
    if (std.mem.eql(u8, path, "/healthz")) return request.respond("ok\n", .{ .keep_alive = false });
    if (!std.mem.eql(u8, path, "/ws")) {
        return request.respond("there is /ws and /healthz\n", .{ .status = .not_found, .keep_alive = false });
    }
    const key = switch (request.upgradeRequested()) {
        .websocket => |key| key,
        else => null,
    } orelse return request.respond("a WebSocket is served here\n", .{ .status = .upgrade_required, .keep_alive = false });
    var ws = try request.respondWebSocket(.{ .key = key });
    try ws.flush();

    server.stats.connected();
    defer server.stats.disconnected();
    try client.serve(server, stream, ws);
}

pub const Readiness = enum { readable, stop, timeout };

/// Waits until the socket has input, the server stops, or the timeout in milliseconds passes.
pub fn waitReadable(server: *const Server, stream: net.Stream, timeout: i32) posix.PollError!Readiness {
    var fds = [_]posix.pollfd{
        .{ .fd = stream.handle, .events = posix.POLL.IN, .revents = 0 },
        .{ .fd = server.stop, .events = posix.POLL.IN, .revents = 0 },
    };
    _ = try posix.poll(&fds, timeout);
    if (fds[1].revents != 0) return .stop;
    return if (fds[0].revents != 0) .readable else .timeout;
}

/// Makes a read fail if it gets nothing for that number of nanoseconds.
pub fn setReadTimeout(stream: net.Stream, ns: u64) posix.SetSockOptError!void {
    const us = @max(1, ns / std.time.ns_per_us);
    const timeout: posix.timeval = .{ .sec = @intCast(us / std.time.us_per_s), .usec = @intCast(us % std.time.us_per_s) };
    try posix.setsockopt(stream.handle, posix.SOL.SOCKET, posix.SO.RCVTIMEO, std.mem.asBytes(&timeout));
}

/// Converts nanoseconds to milliseconds for poll, rounded up.
pub fn milliseconds(ns: u64) i32 {
    return @intCast(@min(std.math.maxInt(i32), ns / std.time.ns_per_ms + 1));
}
