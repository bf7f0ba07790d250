// Package runner is the process that a submission runs in, seen from outside:
// it makes one call at a time there (grader/process/runner.c) and looks at the memory of
// the submission through a file that both processes have mapped (internal/README.md,
// decision 4).
//
// Nothing here knows what is right, and nothing that comes from the process is
// believed: an address is looked at only where the file is.
package runner
