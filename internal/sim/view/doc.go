// Package view is the memory map: it records what a scheduler or the course's
// engine does to the blocks, step by step, and writes a page that plays it back.
// The page is one file, with its script and style inside; it asks for nothing.
//
// A Recorder watches a serve.Scheduler; Course and Story play a trace of the
// course's calls on package course. Nothing here decides anything about memory:
// what a frame shows is read from block tables, and reference counts and filled
// slots follow from those.
package view
