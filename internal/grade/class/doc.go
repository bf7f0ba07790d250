// Package class grades many submissions: it finds them, grades several at a
// time, keeps their reports in a folder from which an interrupted run goes on,
// and brings the folders of several machines together.
//
// What a submission is worth is package grade's to know, and how a report looks
// is package page's.
package class
