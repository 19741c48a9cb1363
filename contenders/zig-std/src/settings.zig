const std = @import("std");

pub const usage =
    \\Usage: zig-std [flags] [PORT [DURATION]]
    \\
    \\A chat server on Zig's standard library.
    \\
    \\  --host=localhost      Address to listen on; localhost is IPv4 and IPv6.
    \\  --port=8080           Port to listen on; 0 takes a free one.
    \\  --duration=0          Stop after so many seconds; 0 runs until stopped.
    \\  --rate-limit=10       Chats a second of one connection.
    \\  --rate-burst=10       Chats at once of one connection.
    \\  --ping-interval=30    Seconds between two JSON pings.
    \\  --pong-timeout=60     Seconds of silence after which a connection is closed.
    \\
;

/// Times are in nanoseconds.
pub const Settings = struct {
    host: []const u8 = "localhost",
    port: u16 = 8080,
    /// 0 runs until stopped.
    duration: u64 = 0,
    rate_limit: f64 = 10,
    rate_burst: f64 = 10,
    ping_interval: u64 = 30 * std.time.ns_per_s,
    pong_timeout: u64 = 60 * std.time.ns_per_s,

    pub const Error = error{ UnknownFlag, MissingValue, InvalidValue, TooManyArguments };

    /// Parses the arguments after the program's name. A flag overrides a positional argument.
    pub fn parse(args: []const []const u8) Error!Settings {
        var s: Settings = .{};
        var arguments: usize = 0;
        for (args, 0..) |arg, i| {
            if (std.mem.startsWith(u8, arg, "--") or follows(args, i)) continue;
            switch (arguments) {
                0 => try s.set("--port", arg),
                1 => try s.set("--duration", arg),
                else => return error.TooManyArguments,
            }
            arguments += 1;
        }
        for (args, 0..) |arg, i| {
            if (!std.mem.startsWith(u8, arg, "--") or follows(args, i)) continue;
            if (std.mem.indexOfScalar(u8, arg, '=')) |equals| {
                try s.set(arg[0..equals], arg[equals + 1 ..]);
            } else {
                if (i + 1 == args.len) return error.MissingValue;
                try s.set(arg, args[i + 1]);
            }
        }
        return s;
    }

    /// Whether an argument is the value of the flag before it.
    fn follows(args: []const []const u8, i: usize) bool {
        if (i == 0) return false;
        const before = args[i - 1];
        return std.mem.startsWith(u8, before, "--") and
            std.mem.indexOfScalar(u8, before, '=') == null and !follows(args, i - 1);
    }

    fn set(s: *Settings, flag: []const u8, value: []const u8) Error!void {
        const Flag = enum { @"--host", @"--port", @"--duration", @"--rate-limit", @"--rate-burst", @"--ping-interval", @"--pong-timeout" };
        switch (std.meta.stringToEnum(Flag, flag) orelse return error.UnknownFlag) {
            .@"--host" => s.host = value,
            .@"--port" => s.port = std.fmt.parseInt(u16, value, 10) catch return error.InvalidValue,
            .@"--duration" => s.duration = try seconds(value, 0),
            .@"--rate-limit" => s.rate_limit = try aboveZero(value),
            .@"--rate-burst" => s.rate_burst = try aboveZero(value),
            .@"--ping-interval" => s.ping_interval = try seconds(value, 1),
            .@"--pong-timeout" => s.pong_timeout = try seconds(value, 1),
        }
    }
};

fn number(text: []const u8) Settings.Error!f64 {
    const n = std.fmt.parseFloat(f64, text) catch return error.InvalidValue;
    return if (n >= 0 and n <= 1e9) n else error.InvalidValue;
}

fn aboveZero(text: []const u8) Settings.Error!f64 {
    const n = try number(text);
    return if (n > 0) n else error.InvalidValue;
}

/// Parses seconds and returns nanoseconds, at least `least`.
fn seconds(text: []const u8, least: u64) Settings.Error!u64 {
    const ns: u64 = @intFromFloat(std.time.ns_per_s * try number(text));
    return if (ns >= least) ns else error.InvalidValue;
}

test "flags and arguments" {
    const second = std.time.ns_per_s;
    for ([_]struct { []const []const u8, u16, u64 }{
        .{ &.{}, 8080, 0 },
        .{ &.{"9000"}, 9000, 0 },
        .{ &.{ "9000", "1.5" }, 9000, second * 3 / 2 },
        .{ &.{ "--port", "0", "--duration=2" }, 0, 2 * second },
        .{ &.{ "--port=9001", "9000", "--rate-limit", "3", "7" }, 9001, 7 * second },
    }) |case| {
        const s = try Settings.parse(case[0]);
        try std.testing.expectEqual(case[1], s.port);
        try std.testing.expectEqual(case[2], s.duration);
    }
}

test "nonsense is refused" {
    try std.testing.expectError(error.UnknownFlag, Settings.parse(&.{ "--prot", "1" }));
    try std.testing.expectError(error.MissingValue, Settings.parse(&.{"--port"}));
    try std.testing.expectError(error.TooManyArguments, Settings.parse(&.{ "1", "2", "3" }));
    for ([_][]const u8{ "--port=65536", "--duration=-1", "--rate-limit=0", "--rate-burst=nan", "--ping-interval=soon", "--pong-timeout=0" }) |arg| {
        try std.testing.expectError(error.InvalidValue, Settings.parse(&.{arg}));
    }
}
