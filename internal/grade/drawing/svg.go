package drawing

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/grade/compare"
)

// Units of the viewBox: 1 is a pixel where a picture is 360 wide, as on a phone.
const (
	pictureWidth = 360
	margin       = 8
	between      = 4 // two cells
	small        = 12
	normal       = 14
	large        = 16
	tableLabel   = 132 // "block_table[0–15]"
	tableRows    = 8   // lines of sequences
)

// SVG draws a scene as three pictures: before the call, as expected after it, as
// it is. They are self-contained, and draw in currentColor; what is wrong is in
// var(--wrong) where the page has that. Nil for what Text draws nothing of.
func SVG(s *compare.Scene, d *compare.Difference) []string {
	v := newView(s, d)
	if v == nil {
		return nil
	}
	var all []string
	for moment := range moments {
		p := &picture{view: v, moment: moment}
		p.draw()
		all = append(all, p.String())
	}
	return all
}

// A picture grows downwards.
type picture struct {
	*view
	moment int
	y      int
	b      strings.Builder
}

// String is the whole element, which says in words what is in it.
func (p *picture) String() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" fill="none" stroke="none" color="inherit" font-family="ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"><title>%s</title><desc>%s</desc>%s</svg>`,
		pictureWidth, p.y+margin, html.EscapeString(p.titles[p.moment]), html.EscapeString(p.describe()), p.b.String())
}

func (p *picture) draw() {
	p.y = 22
	p.write(margin, p.y, large, "bold", piece{text: p.titles[p.moment]})
	if why := p.absent(p.moment); why != "" {
		p.paragraph(why, plain)
	} else {
		p.y += 22
		p.write(margin, p.y, normal, "normal", p.value(&p.free), text(" free of "), p.value(&p.total), text(" blocks"))
		p.counts()
		p.order()
		p.tables()
		p.written()
	}
	if p.moment == actual {
		for _, what := range p.unseen {
			p.paragraph("Wrong: "+what, wrong)
		}
	}
}

// value is one that is not in a cell.
func (p *picture) value(c *column) piece {
	at := c.cells[p.moment]
	said := at.value
	if at.mark == wrong {
		said += " (expected " + at.want + ")"
	}
	return piece{said, at.mark}
}

// chars is how wide a text of the fixed-width font is.
func chars(s string, size int) int { return (utf8.RuneCountInString(s)*size*61 + 99) / 100 }

// write puts pieces beside each other.
func (p *picture) write(x, y, size int, weight string, pieces ...piece) {
	fmt.Fprintf(&p.b, `<text x="%d" y="%d" font-size="%d" font-weight="%s" fill="currentColor" xml:space="preserve">`, x, y, size, weight)
	for _, piece := range pieces {
		fmt.Fprintf(&p.b, `<tspan%s>%s</tspan>`, paint(piece.mark), html.EscapeString(piece.text))
	}
	p.b.WriteString("</text>")
}

// paint is bold for what is marked, and in the colour of what is wrong.
func paint(m mark) string {
	return [...]string{"", ` font-weight="bold"`, ` font-weight="bold" style="fill:var(--wrong,currentColor)"`}[m]
}

func (p *picture) paragraph(s string, m mark) {
	for _, line := range wrap(s, (pictureWidth-2*margin)*100/(normal*61)) {
		p.y += 20
		p.write(margin, p.y, normal, "normal", piece{line, m})
	}
}

// A grid is a strip as it is laid out: cells in rows from x on.
type grid struct {
	strip
	x     int
	rows  int // at most
	least int // width of a cell
	note  func(cell) string
}

// width is that of every cell, and the same at all moments, so that the pictures can be
// compared.
func (g *grid) width() int {
	w := g.least
	for i := range g.strip {
		w = max(w, chars(g.strip[i].label, small))
		for _, at := range g.strip[i].cells {
			w = max(w, chars(at.value, normal), chars(g.under(at), small))
		}
	}
	return w + 8
}

// under is the last line in a cell.
func (g *grid) under(c cell) string {
	if c.mark == wrong {
		return expects(c)
	}
	if g.note == nil {
		return ""
	}
	return g.note(c)
}

func expects(c cell) string {
	if c.want == "" {
		return "expected none"
	}
	return "expected " + c.want
}

func (g *grid) tall() int {
	for i := range g.strip {
		if g.note != nil || g.strip[i].mark() == wrong {
			return 54
		}
	}
	return 40
}

// cells draws a strip and returns what is below it.
func (p *picture) cells(g grid, top int) int {
	x, tall := g.x, g.tall()
	room := pictureWidth - margin - g.x
	const dots = 16
	width := min(room, g.width())
	for _, i := range pick(g.strip, g.rows*room*9/10, func(int) int { return width + between }, dots+between) {
		w := dots
		if i != gap {
			w = width
		}
		if x > g.x && x+w > pictureWidth-margin {
			x, top = g.x, top+tall+between
		}
		if i == gap {
			p.write(x+3, top+tall/2+4, normal, "normal", piece{text: "…"})
		} else {
			p.cell(&g, i, x, top, w, tall)
		}
		x += w + between
	}
	return top + tall
}

func (p *picture) cell(g *grid, i, x, top, w, tall int) {
	c := g.strip[i].cells[p.moment]
	if c.value == "" {
		return
	}
	p.frame(c, x, top, w, tall)
	middle := x + w/2
	for _, line := range []struct {
		text  string
		y     int
		size  int
		style string
	}{
		{g.strip[i].label, top + 15, small, ""},
		{c.value, top + 31, normal, paint(c.mark)},
		{g.under(c), top + 46, small, paint(c.mark &^ changed)},
	} {
		if line.text != "" {
			fmt.Fprintf(&p.b, `<text x="%d" y="%d" text-anchor="middle" font-size="%d" fill="currentColor"%s>%s</text>`,
				middle, line.y, line.size, line.style, html.EscapeString(line.text))
		}
	}
}

// frame is dashed for a free block, filled for one in use, double for a shared
// one, and thick where something is wrong.
func (p *picture) frame(c cell, x, y, w, h int) {
	rect := func(in int, attributes string) {
		fmt.Fprintf(&p.b, `<rect x="%d" y="%d" width="%d" height="%d" rx="%d" %s/>`, x+in, y+in, w-2*in, h-2*in, 5-in, attributes)
	}
	fill := ""
	switch c.fill {
	case used, shared:
		fill = `fill="currentColor" fill-opacity=".1" `
	}
	switch {
	case c.mark == wrong:
		rect(1, fill+`stroke="currentColor" stroke-width="3" style="stroke:var(--wrong,currentColor)"`)
	case c.fill == free:
		rect(0, fill+`stroke="currentColor" stroke-dasharray="4 3"`)
	case c.mark == changed:
		rect(0, fill+`stroke="currentColor" stroke-width="2"`)
	default:
		rect(0, fill+`stroke="currentColor"`)
	}
	if c.fill == shared {
		rect(3, `stroke="currentColor"`)
	}
}

func (p *picture) counts() {
	if len(p.pool) == 0 {
		return
	}
	p.y += 24
	p.write(margin, p.y, small, "normal", piece{text: "ref_count of each block"})
	state := func(c cell) string { return [...]string{"", "free", "used", "shared"}[c.fill] }
	p.y = p.cells(grid{strip: p.pool, x: margin, rows: 4, least: chars("shared", small), note: state}, p.y+6)
}

func (p *picture) order() {
	pieces := []piece{{text: "active_seqs: head"}}
	width := func(i int) int { return chars(" → "+p.list[i].cells[p.moment].value, normal) }
	for _, i := range pick(p.list, pictureWidth, width, chars(" → …", normal)) {
		switch {
		case i == gap:
			pieces = append(pieces, text(" → …"))
		case p.list[i].cells[p.moment].value != "":
			c := p.list[i].cells[p.moment]
			pieces = append(pieces, piece{" → " + c.value, c.mark})
		}
	}
	p.y += 26
	line, x := []piece{}, 0
	for _, piece := range append(pieces, p.closing(p.moment)) {
		w := chars(piece.text, normal)
		if x+w > pictureWidth-2*margin {
			p.write(margin, p.y, normal, "normal", line...)
			line, x = nil, 0
			p.y += 20
		}
		line, x = append(line, piece), x+w
	}
	p.write(margin, p.y, normal, "normal", line...)
}

func (p *picture) tables() {
	chosen, left := p.rows(tableRows)
	for n, r := range chosen {
		s := &p.sequences[r.sequence]
		first := n == 0 || chosen[n-1].sequence != r.sequence
		if !s.present[p.moment] {
			if first && s.missing && p.moment == actual {
				p.paragraph(fmt.Sprintf("no sequence %d", s.id), wrong)
			}
			continue
		}
		if first {
			p.y += 26
			p.write(margin, p.y, normal, "normal", p.name(s, p.moment), text(", kv_count "), p.value(&s.count))
			p.y += 2
		}
		if len(s.tables) > 0 {
			p.table(&s.tables[r.table])
		}
	}
	if left > 0 {
		p.paragraph("("+more(left)+")", plain)
	}
}

func (p *picture) table(t *table) {
	if t.hidden(p.moment) {
		return
	}
	at := t.cells[p.moment]
	top := p.y + 5
	p.write(margin, top+24, small, "normal", piece{t.label, at.mark})
	if at.value == null || len(t.entries) == 0 {
		said := "all -1"
		if at.value == null {
			said = null
		}
		if at.mark == wrong {
			said += ", " + expects(at)
		}
		p.write(margin+tableLabel, top+24, small, "normal", piece{said, at.mark})
		p.y = top + 32
		return
	}
	p.y = p.cells(grid{strip: t.entries, x: margin + tableLabel, rows: 4, least: 26}, top)
}

func (p *picture) written() {
	if len(p.records) == 0 {
		return
	}
	p.y += 24
	p.write(margin, p.y, small, "normal", text("records of block %d: those that differ", p.block))
	p.y = p.cells(grid{strip: p.records, x: margin, rows: 3, least: 26}, p.y+6)
}

// describe is the picture in words.
func (p *picture) describe() string {
	if why := p.absent(p.moment); why != "" {
		return why + "."
	}
	t := &terminal{view: p.view, width: 400}
	t.line(t.cell(&p.free, p.moment), text(" blocks of "), t.cell(&p.total, p.moment), text(" are free."))
	for _, i := range pick(p.pool, 40, func(int) int { return 1 }, 1) {
		if i != gap {
			t.line(text("ref_count[%s] is ", p.pool[i].label), t.cell(&p.pool[i], p.moment), text("."))
		}
	}
	t.order(p.moment)
	t.rows(p.moment)
	t.words(p.moment)
	return strings.Join(strings.Fields(t.b.String()), " ")
}
