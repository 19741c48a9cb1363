// Package scenario holds the workloads of the workbench. Those that measure a
// server reach it by URL, as a process of its own: what a user would get.
package scenario
