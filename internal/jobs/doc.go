// Package jobs has code shared by commands that run many jobs, on one machine or on
// several, and can be resumed: the parts of a job array, atomic file replacement,
// temporary folders, and the name of the program that wrote a file.
//
// The packages of the commands define the jobs.
package jobs
