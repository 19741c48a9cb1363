// Package presence writes into a stream who connects to a server, and who joins which room, so that programs can follow it.
//
// A Recorder is told by the gateway and the rooms. It takes note of each change in memory, under one mutex that is held briefly, and one goroutine writes
// the changes in batches. So nothing that is recorded waits for PostgreSQL.
//
// # Losses
//
// At most Config.MaxWaiting changes wait. While there is no room for more, changes are counted and dropped, and only the picture (which connections there are, and
// in which rooms they are) is kept up to date. As soon as everything that waits is written, the Recorder writes events_lost with the count, and then the whole picture. So what
// readers know is wrong only until then. The same happens when the stream was dropped, or a failover may have lost events.
//
// # Servers that die
//
// Each server has a row in tidewire.presence_nodes: see Recorder.beat and 0030_presence.sql.
package presence
