// Package multinode runs several nodes of Tidewire on one private PostgreSQL under load, breaks nodes and the ways between them, and
// checks that Tidewire keeps its promises.
//
// The nodes are separate processes. With network namespaces (see package fault), each has its own, and reaches PostgreSQL through
// a proxy. Clients of every node talk in a live room and in a stored room, watch who is in the live room, publish to a stream and
// subscribe to it, enqueue, and take deliveries at one node that they acknowledge at another. Meanwhile a seed decides which fault
// hits which node, and for how long. The clients record what was sent, acknowledged and delivered, and the run compares it with what is
// stored in the end.
//
// RunSteady measures the CPU time of PostgreSQL and the nodes without faults.
package multinode
