// Package jobs has code shared by commands that run many jobs: the parts of a job array, atomic file replacement,
// temporary folders, and the digest of the program that wrote a file.
package jobs
