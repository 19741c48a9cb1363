const std = @import("std");

/// A token bucket that is refilled continuously. Times are in nanoseconds.
pub const Bucket = struct {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: u64,

    pub fn init(per_second: f64, burst: f64, now: u64) Bucket {
        return .{ .per_second = per_second, .burst = burst, .tokens = burst, .at = now };
    }

    /// Takes a token if there is a whole one.
    pub fn take(b: *Bucket, now: u64) bool {
        const seconds = @as(f64, @floatFromInt(now - b.at)) / std.time.ns_per_s;
        b.tokens = @min(b.burst, b.tokens + b.per_second * seconds);
        b.at = now;
        if (b.tokens < 1) return false;
        b.tokens -= 1;
        return true;
    }
};

test "the burst at once, then the rate" {
    const ms = std.time.ns_per_ms;
    var bucket: Bucket = .init(10, 10, 5 * ms);
    for (0..10) |_| try std.testing.expect(bucket.take(5 * ms));
    try std.testing.expect(!bucket.take(5 * ms));
    try std.testing.expect(!bucket.take(65 * ms));
    try std.testing.expect(bucket.take(125 * ms));
    try std.testing.expect(!bucket.take(126 * ms));
}

test "never more than the burst" {
    var bucket: Bucket = .init(10, 2, 0);
    const later = 60 * std.time.ns_per_s;
    for (0..2) |_| try std.testing.expect(bucket.take(later));
    try std.testing.expect(!bucket.take(later));
}
