const std = @import("std");
const Allocator = std.mem.Allocator;
const queue = @import("queue.zig");
const Queue = queue.Queue;
const Outgoing = queue.Outgoing;

/// The members of each room. A member is identified by its queue.
pub const Rooms = struct {
    gpa: Allocator,
    lock: std.Thread.RwLock = .{},
    /// This map owns the names.
    rooms: std.StringHashMapUnmanaged(Members) = .empty,

    const Members = std.AutoArrayHashMapUnmanaged(*Queue, void);

    pub fn join(r: *Rooms, name: []const u8, member: *Queue) error{OutOfMemory}!void {
        r.lock.lock();
        defer r.lock.unlock();
        if (r.rooms.getPtr(name)) |members| return members.put(r.gpa, member, {});
        const owned = try r.gpa.dupe(u8, name);
        errdefer r.gpa.free(owned);
        var members: Members = .empty;
        errdefer members.deinit(r.gpa);
        try members.put(r.gpa, member, {});
        try r.rooms.put(r.gpa, owned, members);
    }

    /// Removes a member. A room is removed with its last member.
    pub fn leave(r: *Rooms, name: []const u8, member: *Queue) void {
        r.lock.lock();
        defer r.lock.unlock();
        const entry = r.rooms.getEntry(name) orelse return;
        _ = entry.value_ptr.swapRemove(member);
        if (entry.value_ptr.count() > 0) return;
        entry.value_ptr.deinit(r.gpa);
        const owned = entry.key_ptr.*;
        r.rooms.removeByPtr(entry.key_ptr);
        r.gpa.free(owned);
    }

    /// Passes a message to every other member. Returns how many had a full
    /// queue. Concurrent senders do not wait for one another: members get each
    /// sender's messages in order, but may see the messages of two senders in
    /// different orders.
    pub fn say(r: *Rooms, name: []const u8, from: *Queue, out: *Outgoing) u64 {
        r.lock.lockShared();
        defer r.lock.unlockShared();
        const members = r.rooms.getPtr(name) orelse return 0;
        var lost: u64 = 0;
        for (members.keys()) |member| {
            if (member == from) continue;
            member.push(out) catch {
                lost += 1;
            };
        }
        return lost;
    }

    pub fn deinit(r: *Rooms) void {
        r.rooms.deinit(r.gpa);
    }
};

test "a message reaches the other members of its room" {
    const gpa = std.testing.allocator;
    var rooms: Rooms = .{ .gpa = gpa };
    defer rooms.deinit();
    var members: [3]Queue = .{ .{}, .{}, .{} };
    defer for (&members) |*m| m.deinit(gpa);
    try rooms.join("r", &members[0]);
    try rooms.join("r", &members[1]);
    try rooms.join("r", &members[1]);
    try rooms.join("s", &members[2]);

    const out: *Outgoing = try .create(gpa, .text, "hello");
    defer out.release(gpa);
    try std.testing.expectEqual(0, rooms.say("r", &members[0], out));
    for ([_]usize{ 0, 1, 0 }, &members) |want, *m| try std.testing.expectEqual(want, m.len);

    rooms.leave("r", &members[1]);
    rooms.leave("r", &members[1]);
    _ = rooms.say("r", &members[0], out);
    try std.testing.expectEqual(1, members[1].len);
    rooms.leave("r", &members[0]);
    rooms.leave("s", &members[2]);
    try std.testing.expectEqual(0, rooms.rooms.count());
}

test "a member that does not read loses messages and holds up nobody" {
    const gpa = std.testing.allocator;
    var rooms: Rooms = .{ .gpa = gpa };
    defer rooms.deinit();
    var slow: Queue = .{};
    defer slow.deinit(gpa);
    var sender: Queue = .{};
    try rooms.join("r", &slow);
    defer rooms.leave("r", &slow);

    const out: *Outgoing = try .create(gpa, .text, "x");
    defer out.release(gpa);
    var lost: u64 = 0;
    for (0..Queue.capacity + 3) |_| lost += rooms.say("r", &sender, out);
    try std.testing.expectEqual(3, lost);
}
