// Package jobs has code for commands that run many jobs: the parts of a job array, atomic file replacement,
// temporary folders, and digests of files.
package jobs
