// Package picture draws the block pool, the block tables and the free queue of
// a scheduler as an SVG. It draws a real state: package sched serves a few requests,
// and a worker that sees only the steps records which
// token is in which slot.
//
// No rule of the cache may appear here.
package picture
