// Package sandbox shuts a submission in before it starts, without root,
// namespaces or a daemon: a launcher (grader/process/launch.c) takes its own rights away
// and executes the submission in its place. The launcher is compiled once by
// each grader that starts one, and linked with nothing of a submission's.
//
// What a kernel lacks is left out and said, never passed over in silence
// (Active).
package sandbox
