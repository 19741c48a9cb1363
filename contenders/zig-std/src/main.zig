//! A chat server on Zig's standard library: std.http.Server for the handshake
//! and the frames, two threads for each connection, a bounded queue between.

const std = @import("std");
const net = std.net;
const posix = std.posix;
const Server = @import("server.zig").Server;
const settings = @import("settings.zig");

/// How long a stop may take.
const stopping = 5 * std.time.ns_per_s;

pub fn main() !u8 {
    const gpa = std.heap.smp_allocator;
    const args = try std.process.argsAlloc(gpa);
    var buffer: [1024]u8 = undefined;
    var stdout = std.fs.File.stdout().writerStreaming(&buffer);
    const out = &stdout.interface;
    for (args[1..]) |arg| {
        if (!std.mem.eql(u8, arg, "--help") and !std.mem.eql(u8, arg, "-h")) continue;
        try out.writeAll(settings.usage);
        try out.flush();
        return 0;
    }
    const chosen = settings.Settings.parse(args[1..]) catch |err| {
        std.debug.print("zig-std: {t}\n\n{s}", .{ err, settings.usage });
        return 2;
    };
    var listeners: [2]net.Server = undefined;
    const open = listen(&listeners, chosen) catch |err| {
        std.debug.print("zig-std: cannot listen on port {d} of {s}: {t}; choose others with --host and --port\n", .{ chosen.port, chosen.host, err });
        return 1;
    };
    raiseFileLimit();

    var server: Server = .{
        .gpa = gpa,
        .settings = chosen,
        .rooms = .{ .gpa = gpa },
        .started = try .now(),
        .stop = try stopAtSignals(),
    };
    try out.print("listening on :{d}\n", .{open[0].listen_address.getPort()});
    try out.flush();
    try server.accept(open);
    for (open) |*listener| listener.deinit();
    tellAll();
    _ = server.drain(stopping);

    try server.stats.print(out, server.now());
    try out.flush();
    std.debug.print("{d} messages ignored, {d} deliveries lost to full queues\n", .{
        server.stats.ignored.load(.monotonic), server.stats.lost.load(.monotonic),
    });
    return 0;
}

/// Opens the port on every address of the host: localhost stands for both
/// loopback addresses, if the machine has them.
fn listen(listeners: *[2]net.Server, s: settings.Settings) ![]net.Server {
    if (!std.mem.eql(u8, s.host, "localhost")) {
        listeners[0] = try listenOn(try .parseIp(s.host, s.port));
        return listeners[0..1];
    }
    listeners[0] = try listenOn(try .parseIp4("127.0.0.1", s.port));
    errdefer listeners[0].deinit();
    const port = listeners[0].listen_address.getPort();
    listeners[1] = listenOn(try .parseIp6("::1", port)) catch |err| switch (err) {
        error.AddressNotAvailable, error.AddressFamilyNotSupported => return listeners[0..1], // a machine without IPv6
        else => return err,
    };
    return listeners[0..2];
}

/// Like net.Address.listen, but its reuse_address would let two servers share a
/// port, and without it a restart fails while old connections linger.
fn listenOn(address: net.Address) !net.Server {
    const fd = try posix.socket(address.any.family, posix.SOCK.STREAM | posix.SOCK.CLOEXEC, posix.IPPROTO.TCP);
    errdefer posix.close(fd);
    try posix.setsockopt(fd, posix.SOL.SOCKET, posix.SO.REUSEADDR, &std.mem.toBytes(@as(c_int, 1)));
    var server: net.Server = .{ .listen_address = address, .stream = .{ .handle = fd } };
    var len = address.getOsSockLen();
    try posix.bind(fd, &address.any, len);
    try posix.listen(fd, 1024);
    try posix.getsockname(fd, &server.listen_address.any, &len);
    return server;
}

/// Each connection needs a file descriptor.
fn raiseFileLimit() void {
    const limits = posix.getrlimit(.NOFILE) catch return;
    posix.setrlimit(.NOFILE, .{ .cur = limits.max, .max = limits.max }) catch {};
}

/// A pipe that tells all threads to stop: nobody reads the data written to it,
/// so it stays readable.
var stop_pipe: [2]posix.fd_t = undefined;

/// Returns a descriptor that becomes readable at SIGINT and SIGTERM.
fn stopAtSignals() !posix.fd_t {
    stop_pipe = try posix.pipe2(.{ .CLOEXEC = true, .NONBLOCK = true });
    const action: posix.Sigaction = .{
        .handler = .{ .handler = onSignal },
        .mask = posix.sigemptyset(),
        .flags = posix.SA.RESETHAND, // a second signal stops at once
    };
    posix.sigaction(posix.SIG.INT, &action, null);
    posix.sigaction(posix.SIG.TERM, &action, null);
    return stop_pipe[0];
}

fn onSignal(_: c_int) callconv(.c) void {
    tellAll();
}

fn tellAll() void {
    _ = posix.write(stop_pipe[1], "x") catch {};
}

test {
    std.testing.refAllDecls(@This());
}
