// Package fault is a kit for fault tests. It breaks real connections and real processes, and repairs them again:
//
//   - Net joins network namespaces by a bridge, cuts the ways between them, limits their rates, and takes links down.
//     It needs Linux, root and the program ip; Available says what is missing.
//   - Proxy is a TCP proxy inside the test's process that delays, stalls, resets and refuses connections.
//   - Proc is a child process that can be stopped, continued and killed, and that does not outlive the test's process.
//
// Use Net if the fault has to hit all connections of a process, including those that it opens later, and Proxy if one connection is enough:
// Proxy needs no rights, and works on other Unix systems, too.
package fault
