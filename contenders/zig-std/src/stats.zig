const std = @import("std");

const Counter = std.atomic.Value(u64);

/// The counters of the server since its start.
pub const Stats = struct {
    messages: Counter = .init(0),
    /// Chats over the rate limit.
    dropped: Counter = .init(0),
    /// Messages that the server ignored.
    ignored: Counter = .init(0),
    deliveries: Counter = .init(0),
    /// Deliveries that were dropped because a member's queue was full.
    lost: Counter = .init(0),
    connections: Counter = .init(0),
    open: Counter = .init(0),
    peak: Counter = .init(0),

    pub fn add(counter: *Counter, n: u64) void {
        _ = counter.fetchAdd(n, .monotonic);
    }

    pub fn connected(s: *Stats) void {
        add(&s.connections, 1);
        const open = s.open.fetchAdd(1, .monotonic) + 1;
        _ = s.peak.fetchMax(open, .monotonic);
    }

    pub fn disconnected(s: *Stats) void {
        _ = s.open.fetchSub(1, .monotonic);
    }

    /// Writes the block of statistics that every server with this contract
    /// prints when it stops, for the elapsed nanoseconds.
    pub fn print(s: *const Stats, w: *std.Io.Writer, elapsed: u64) std.Io.Writer.Error!void {
        const messages = s.messages.load(.monotonic);
        const dropped = s.dropped.load(.monotonic);
        const seconds = @as(f64, @floatFromInt(elapsed)) / std.time.ns_per_s;
        try w.print(
            \\--- Statistics ---
            \\Total messages: {d}
            \\Total connections: {d}
            \\Peak connections: {d}
            \\Messages dropped: {d}
            \\Message drop rate: {d:.2}%
            \\Throughput: {d:.2} messages/sec
            \\Processing time: {D}
            \\Average latency: {D}
            \\Deliveries: {d}
            \\
        , .{
            messages,
            s.connections.load(.monotonic),
            s.peak.load(.monotonic),
            dropped,
            100 * ratio(dropped, messages + dropped),
            @as(f64, @floatFromInt(messages)) / seconds,
            elapsed,
            if (messages > 0) elapsed / messages else 0,
            s.deliveries.load(.monotonic),
        });
    }
};

fn ratio(part: u64, whole: u64) f64 {
    if (whole == 0) return 0;
    return @as(f64, @floatFromInt(part)) / @as(f64, @floatFromInt(whole));
}

test "a figure a line" {
    var stats: Stats = .{};
    for (0..3) |_| stats.connected();
    stats.disconnected();
    stats.connected();
    Stats.add(&stats.messages, 3);
    Stats.add(&stats.dropped, 6);
    Stats.add(&stats.deliveries, 5);
    var buffer: [512]u8 = undefined;
    var w: std.Io.Writer = .fixed(&buffer);
    try stats.print(&w, 1500 * std.time.ns_per_ms);
    try std.testing.expectEqualStrings(
        \\--- Statistics ---
        \\Total messages: 3
        \\Total connections: 4
        \\Peak connections: 3
        \\Messages dropped: 6
        \\Message drop rate: 66.67%
        \\Throughput: 2.00 messages/sec
        \\Processing time: 1.5s
        \\Average latency: 500ms
        \\Deliveries: 5
        \\
    , w.buffered());
}

test "an idle server's figures are zeros" {
    var buffer: [512]u8 = undefined;
    var w: std.Io.Writer = .fixed(&buffer);
    try (Stats{}).print(&w, 2 * std.time.ns_per_s);
    for ([_][]const u8{ "rate: 0.00%\n", "Throughput: 0.00 messages/sec\n", "Processing time: 2s\n", "Average latency: 0ns\n" }) |line| {
        try std.testing.expect(std.mem.indexOf(u8, w.buffered(), line) != null);
    }
}
