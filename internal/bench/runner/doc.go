// Package runner serves the console's screen of benchmarks: it finds result files in a folder, and runs the quick form of a scenario as a child process.
//
// The child is the same program. It gets the name of a scenario and nothing else from a client, an environment without the server's settings and secrets, and so
// a private PostgreSQL of its own. It ends when its standard input closes: so also when the server is killed.
package runner
