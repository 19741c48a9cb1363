// Package cluster connects the rooms of several servers, the nodes of a cluster, so that members on different nodes are in one
// room.
//
// A node sends what its own members publish, in batches of ready frames, to the nodes with members of the same room. The frames
// of a room are numbered by the node that sends them. So a node that receives them can tell its members how many are missing,
// and gives none twice. There is no common order of several nodes: members on one node see one order, and all members see the
// messages of each sender in its order.
//
// # Topics
//
// A relay.Relay carries the messages. The names of rooms are hashed onto 4,096 topics, the slots; a node listens to the slots of
// its rooms, and drops what is for other rooms of a slot. So what nodes have to know of each other is bounded, also with a
// million rooms.
//
// # Losses
//
// When a room begins on a node, the node says so, and the others answer with their numbers. A hole in the numbers is noticed with the next batch. For the time after the last batch, each node sends a digest once a
// second: the last number of each room in which it has sent within the last three seconds. Each node also sends a heartbeat,
// which is numbered, too. A node that notices a hole in the heartbeats of another, or hears another for the first time, asks it
// for the numbers of all rooms.
//
// # Presence
//
// Each node tells the others which of its own members are in a room, while another node asks for that: see presence.go.
package cluster
