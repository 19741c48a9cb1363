// Package failover makes PostgreSQL fail over under load, again and again, and checks that Tidewire keeps its promises.
//
// A Pair is two private PostgreSQL servers, a primary and its standby. Two nodes of Tidewire run as separate processes,
// and have both servers in their address. Clients of these nodes publish, subscribe, commit offsets, enqueue, consume,
// acknowledge and append under conditions. Meanwhile a seed decides how the primary is lost (Fault), how long until the
// standby is promoted, and what happens in between. Each client records in the Ledger what it sent, what was
// acknowledged and what was delivered to it. In the end the run reads everything once more, and compares it with the
// Ledger.
package failover
