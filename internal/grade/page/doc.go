// Package page writes reports as HTML: one page for a student, one for the class.
// A page is one file: no script, no font, no picture from elsewhere.
//
// Everything that comes from a submission goes through html/template. The one
// piece of markup that does not is what package drawing makes. Nothing here
// grades: what a page says is in the Report.
package page
