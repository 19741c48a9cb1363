const std = @import("std");
const Allocator = std.mem.Allocator;
const Opcode = std.http.Server.WebSocket.Opcode;

/// An outgoing message, shared by the queues of all receivers.
pub const Outgoing = struct {
    refs: std.atomic.Value(usize) = .init(1),
    op: Opcode,
    /// True for a chat of another member, false for an answer.
    delivery: bool = false,
    /// Owned by this message, and freed with the last reference.
    data: []const u8,

    /// Copies data. The caller holds the first reference.
    pub fn create(gpa: Allocator, op: Opcode, data: []const u8) error{OutOfMemory}!*Outgoing {
        const copy = try gpa.dupe(u8, data);
        errdefer gpa.free(copy);
        const out = try gpa.create(Outgoing);
        out.* = .{ .op = op, .data = copy };
        return out;
    }

    pub fn retain(out: *Outgoing) void {
        _ = out.refs.fetchAdd(1, .monotonic);
    }

    pub fn release(out: *Outgoing, gpa: Allocator) void {
        if (out.refs.fetchSub(1, .acq_rel) != 1) return;
        gpa.free(out.data);
        gpa.destroy(out);
    }
};

/// The messages that wait to be written to one client: a bounded queue with one
/// reader.
pub const Queue = struct {
    mutex: std.Thread.Mutex = .{},
    filled: std.Thread.Condition = .{},
    freed: std.Thread.Condition = .{},
    ring: [capacity]*Outgoing = undefined,
    first: usize = 0,
    len: usize = 0,
    closed: bool = false,

    /// The maximum number of waiting messages.
    pub const capacity = 1024;

    /// Adds a message if there is a free place. A message that is added after
    /// close is dropped.
    pub fn push(q: *Queue, out: *Outgoing) error{Full}!void {
        {
            q.mutex.lock();
            defer q.mutex.unlock();
            if (q.len == capacity) return error.Full;
            q.add(out);
        }
        q.filled.signal(); // after the unlock, or the woken thread would wait for the mutex
    }

    /// Adds a message, or fails if there is no free place for `patience`
    /// nanoseconds.
    pub fn pushWait(q: *Queue, out: *Outgoing, patience: u64) error{Timeout}!void {
        {
            q.mutex.lock();
            defer q.mutex.unlock();
            while (q.len == capacity and !q.closed) try q.freed.timedWait(&q.mutex, patience);
            q.add(out);
        }
        q.filled.signal();
    }

    fn add(q: *Queue, out: *Outgoing) void {
        if (q.closed) return;
        out.retain();
        q.ring[(q.first + q.len) % capacity] = out;
        q.len += 1;
    }

    /// Waits for messages and moves as many as fit into batch. The caller
    /// releases them. Empty means closed.
    pub fn take(q: *Queue, batch: []*Outgoing) []*Outgoing {
        q.mutex.lock();
        defer q.mutex.unlock();
        if (q.len == 0) {
            while (q.len == 0 and !q.closed) q.filled.wait(&q.mutex);
            // The sender continues first: its next messages leave in the same
            // write, and the processor does not switch threads for each
            // message.
            q.mutex.unlock();
            std.Thread.yield() catch {};
            q.mutex.lock();
        }
        const n = @min(q.len, batch.len);
        for (batch[0..n]) |*out| {
            out.* = q.ring[q.first];
            q.first = (q.first + 1) % capacity;
        }
        q.len -= n;
        q.freed.signal();
        return batch[0..n];
    }

    /// Closes the queue. Messages in it can still be taken.
    pub fn close(q: *Queue) void {
        q.mutex.lock();
        defer q.mutex.unlock();
        q.closed = true;
        q.filled.signal();
        q.freed.signal();
    }

    /// Releases the messages that nobody took.
    pub fn deinit(q: *Queue, gpa: Allocator) void {
        for (0..q.len) |i| q.ring[(q.first + i) % capacity].release(gpa);
    }
};

fn pushText(q: *Queue, text: []const u8) !void {
    const out = try Outgoing.create(std.testing.allocator, .text, text);
    defer out.release(std.testing.allocator);
    try q.push(out);
}

test "first in, first out, until it is closed" {
    const gpa = std.testing.allocator;
    var q: Queue = .{};
    defer q.deinit(gpa);
    var batch: [2]*Outgoing = undefined;
    for ([_][]const u8{ "a", "b", "c" }) |text| try pushText(&q, text);
    for ([_][]const []const u8{ &.{ "a", "b" }, &.{"c"} }) |want| {
        const got = q.take(&batch);
        try std.testing.expectEqual(want.len, got.len);
        for (want, got) |text, out| {
            try std.testing.expectEqualStrings(text, out.data);
            out.release(gpa);
        }
    }
    q.close();
    try pushText(&q, "too late");
    try std.testing.expectEqual(0, q.take(&batch).len);
}

test "a full queue takes no more, and waiting for it ends" {
    const gpa = std.testing.allocator;
    var q: Queue = .{};
    defer q.deinit(gpa);
    for (0..Queue.capacity) |_| try pushText(&q, "x");
    try std.testing.expectError(error.Full, pushText(&q, "y"));
    const out = try Outgoing.create(gpa, .text, "y");
    defer out.release(gpa);
    try std.testing.expectError(error.Timeout, q.pushWait(out, 1));
    var batch: [1]*Outgoing = undefined;
    q.take(&batch)[0].release(gpa);
    try q.pushWait(out, 1);
}
