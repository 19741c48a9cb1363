// Package overview remembers the last minutes of a server's figures, one point for each second.
//
// A [Recorder] reads each [Figure] once a second and keeps [Length] points in memory. It reads counters that the server has anyway, so
// its cost does not depend on the load. A [Latency] measures some of many requests: about a thousand a second, however many there are.
package overview
