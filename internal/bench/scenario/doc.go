// Package scenario has the workloads of the workbench. Workloads that measure a
// server run it as a separate process and reach it by URL, as users do.
package scenario
