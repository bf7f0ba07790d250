// Package class grades many submissions: it finds them, grades several at a
// time, keeps their reports in a folder from which an interrupted run resumes,
// and merges the folders of several machines.
//
// Points are in package grade, the appearance of reports in package page.
package class
