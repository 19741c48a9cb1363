// Package failover has PostgreSQL fail over under load, again and again, and checks that Tidewire keeps its promises.
//
// A Pair is two private PostgreSQL servers, a primary and its standby. Two nodes of Tidewire, processes of their
// own, have both in their address. Clients of these nodes publish, subscribe, commit offsets, enqueue, consume, acknowledge and
// append under conditions, while a seed decides how the primary is lost (Fault), how long until the standby
// is promoted, and what happens in between. Each client tells the DeliveryChecker what it sent, what was answered and what it
// was sent. In the end everything is read once more, and the DeliveryChecker compares.
package failover
