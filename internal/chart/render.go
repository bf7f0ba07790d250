package chart

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// png returns the figure at two pixels for each of its points.
func (l *layout) png() ([]byte, error) {
	c := vgimg.NewWith(vgimg.UseWH(pictureWidth, l.height), vgimg.UseDPI(144))
	l.drawOn(c)
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// fonts says what may stand for our font, in the way of the backend: Arial and
// Liberation Sans have the same widths.
var fonts = strings.NewReplacer(
	"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal", "font-family:"+family,
	"font-family:Liberation Sans;font-variant:normal;font-weight:bold;font-style:normal",
	"font-weight:bold;font-family:"+family,
)

const family = "'Liberation Sans',Arial,Helvetica,sans-serif"

// A measured canvas remembers how wide each text is, so that a reader without our
// font sees texts of the same width: nothing collides.
type measured struct {
	*vgsvg.Canvas
	widths []vg.Length
}

func (m *measured) FillString(f font.Face, at vg.Point, s string) {
	m.widths = append(m.widths, f.Width(s))
	m.Canvas.FillString(f, at, s)
}

func (m *measured) setWidths(drawing string) string {
	const text = "<text "
	parts := strings.Split(drawing, text)
	for i, w := range m.widths {
		parts[i+1] = fmt.Sprintf(`textLength="%s" lengthAdjust="spacingAndGlyphs" %s`, vgRound(w), parts[i+1])
	}
	return strings.Join(parts, text)
}

// svg returns the figure with a title and a description for readers who cannot see it.
func (l *layout) svg() (string, error) {
	c := &measured{Canvas: vgsvg.New(pictureWidth, l.height)}
	l.drawOn(c)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	const end = "xmlns:xlink=\"http://www.w3.org/1999/xlink\">\n"
	_, drawing, found := strings.Cut(b.String(), end)
	if !found {
		return "", errors.New("chart: the SVG backend begins a drawing in a way that is new")
	}
	f := l.figure
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%v" viewBox="0 0 %d %[2]v" role="img" aria-labelledby="%[4]s-title %[4]s-desc">
<title id="%[4]s-title">%[5]s</title>
<desc id="%[4]s-desc">%[6]s</desc>
`, pictureWidth, vgRound(l.height), pictureWidth, f.Name, html.EscapeString(f.Title), html.EscapeString(l.words()))
	return printable(head + c.setWidths(fonts.Replace(drawing))), nil
}

func vgRound(v vg.Length) string { return fmt.Sprintf("%.5g", float64(v)) }

// words describe the figure; its numbers are in the table below it.
func (l *layout) words() string {
	var b strings.Builder
	for _, p := range l.figure.Panels {
		if p.Title != "" {
			b.WriteString(p.Title + ": ")
		}
		fmt.Fprintf(&b, "%s against %s, for %s. ", p.Y.Title, p.X.Title, strings.Join(p.Data.series(), ", "))
	}
	b.WriteString(l.captions())
	return strings.TrimSpace(b.String())
}
