// Package page writes reports as HTML: one page for a student, one for the class.
// A page is one file: it loads no script, font or picture.
//
// Everything that comes from a submission goes through html/template. The one
// piece of markup that does not is what package drawing makes. Nothing here
// grades: everything on a page is in the Report.
package page
