// Package sandbox restricts a submission before it starts, without root,
// namespaces or a daemon: a launcher (grader/process/launch.c) gives up its own rights
// and then executes the submission. The launcher is compiled once by
// each grader that starts one, and linked with nothing of a submission.
//
// A layer that the kernel lacks is left out, and Active reports which layers are active.
package sandbox
