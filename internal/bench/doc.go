// Package bench is the core of the workbench: connections that make load
// cheaply enough to share two cores with the server under test, samplers of
// what every process involved uses, the capture of the environment, and the
// result file that all of it ends in.
//
// Scenarios are in bench/scenario, what people read in bench/report.
package bench
