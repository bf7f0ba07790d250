// Package runner controls the process that a submission runs in:
// it makes one call at a time there (grader/process/runner.c) and looks at the memory of
// the submission through a file that both processes have mapped (internal/README.md,
// decision 4).
//
// Nothing here judges, and nothing that comes from the process is
// trusted: only addresses inside the file are read.
package runner
