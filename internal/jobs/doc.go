// Package jobs has what commands share that run many jobs, on one machine or on
// several, and that can be resumed: the parts of a job array, atomic file replacement,
// temporary folders, and the name of the program that wrote a file.
//
// What a job does is in the packages of the commands.
package jobs
