// Package bench is the core of the workbench: connections that make load with
// so little CPU that the server under test can share two cores with them,
// samplers of the resources of every process, the description of the
// environment, and the result file.
//
// Scenarios are in bench/scenario, reports in bench/report.
package bench
