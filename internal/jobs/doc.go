// Package jobs is what commands share that do many things, on one machine or on
// several, and go on where they ended: the parts of a job array, files that are
// whole or not there, temporary folders, and the name of the program that wrote them.
//
// What a job is, and what becomes of it, is the commands' own.
package jobs
