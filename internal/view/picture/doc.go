// Package picture draws the block pool, the block tables and the free queue of
// a scheduler as an SVG. What it draws is a real state: a few requests are
// served by package sched, and a worker that knows only the steps notes which
// token is in which slot.
//
// No rule of the cache may appear here.
package picture
