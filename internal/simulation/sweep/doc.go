// Package sweep runs a grid of scenarios: systems × block sizes × rates × seeds, several at a time. A store
// keeps finished results, so that an interrupted sweep can resume. sweep.csv has a row for each job.
// Interruptions do not change its bytes.
//
// A single run is in package scenario.
package sweep
