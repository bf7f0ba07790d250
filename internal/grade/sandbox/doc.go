// Package sandbox shuts a submission in before it starts, without root,
// namespaces or a daemon: the grader's own program is executed again, takes its
// rights away, and executes the submission in its place.
//
// What a kernel lacks is left out and said, never passed over in silence
// (Layers).
package sandbox
