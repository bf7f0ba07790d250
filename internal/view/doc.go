// Package view is the memory map: it records what a scheduler or the course's
// engine does to the blocks, step by step, and writes a page that plays it back.
// The page is one file, with its script and style inside; it asks for nothing,
// except one of a Live recording, which asks its server for the steps that come.
//
// A Recorder watches a serve.Scheduler:
//
//	r := &view.Recording{Title: "...", System: "...", BlockSize: 16, NumGPUBlocks: 983, NumCPUBlocks: 1638}
//	rec, err := view.NewRecorder(r, scheduler, view.Limits{From: 60, Frames: 300})
//	for !rec.Full() {
//		scheduler.Step(&it)
//		rec.Observe(now, &it)
//		answered, _ = scheduler.Finish(answered[:0], done...)
//		rec.Finished(now, answered...)
//	}
//	view.Write(file, r)
//
// Course plays a trace of the course's calls on package course. Story plays a built-in
// Scene: one recording, or two side by side on one clock. WriteScenes puts several into
// one page. Nothing here decides anything about memory: what a frame shows is read from
// block tables, and reference counts and filled slots follow from those.
package view
