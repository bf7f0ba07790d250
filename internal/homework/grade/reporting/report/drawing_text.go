package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/terminal"
)

const (
	narrowest = 40 // columns that a drawing needs
	narrow    = 60 // below, tables stand under their sequence
	maxRows   = 4  // lines of sequences for each moment
	maxWords  = 4  // lines of what is wrong
	indent    = 2
)

// Drawing draws a scene for a terminal. width is the number of columns of the terminal, at least 40; 0 means 80. d is
// the difference, which names the call; it may be nil. The result is empty if the scene is nil or has no engine at
// any moment. Each line ends in "\n".
func Drawing(s *compare.Scene, d *compare.Difference, width int, colour bool) string {
	if width == 0 {
		width = 80
	}
	paint := func(p piece) string { return p.text }
	if colour {
		paint = paintTerminal
	}
	moments := draw(s, d, width, paint)
	if moments == nil {
		return ""
	}
	return strings.Join(moments, "\n") + legend + "\n"
}

func pictures(s *compare.Scene, d *compare.Difference) (all []template.HTML) {
	for _, text := range draw(s, d, narrowest, paintPage) {
		all = append(all, template.HTML(text)) // escaped by paintPage
	}
	return all
}

const legend = "  [ 0 ] free  [░1░] used  [▓2▓] shared"

func paintTerminal(p piece) string {
	if p.mark == plain || p.text == "" {
		return p.text
	}
	return [...]string{changed: "\x1b[1;36m", wrong: "\x1b[1;31m"}[p.mark] + p.text + "\x1b[0m"
}

func paintPage(p piece) string {
	text := template.HTMLEscapeString(p.text)
	if p.mark == plain || p.text == "" {
		return text
	}
	return fmt.Sprintf(`<b class="%s">%s</b>`, [...]string{changed: "changed", wrong: "failed"}[p.mark], text)
}

// draw returns three drawings of a scene: the memory before the call, the expected memory after it, and the actual
// memory after it. It returns nil if there is nothing to draw.
func draw(s *compare.Scene, d *compare.Difference, width int, paint func(piece) string) (all []string) {
	v := newView(s, d)
	if v == nil {
		return nil
	}
	for moment := range moments {
		c := &canvas{view: v, moment: moment, width: max(width, narrowest), paint: paint}
		c.draw()
		all = append(all, c.b.String())
	}
	return all
}

// A canvas is the drawing of one moment while it is written, line by line.
type canvas struct {
	*view
	moment int
	width  int
	paint  func(piece) string
	b      strings.Builder
}

// A piece is a part of a line. Its mark gives it a colour.
type piece struct {
	text string
	mark mark
}

func text(format string, values ...any) piece { return piece{text: fmt.Sprintf(format, values...)} }

// line writes a line, cut to the width.
func (c *canvas) line(pieces ...piece) {
	limit := c.width
	for _, p := range pieces {
		if n := utf8.RuneCountInString(p.text); n > limit {
			p.text = cut(p.text, limit)
		}
		limit -= utf8.RuneCountInString(p.text)
		c.b.WriteString(c.paint(p))
	}
	c.b.WriteByte('\n')
}

func cut(s string, limit int) string {
	if limit < 1 {
		return ""
	}
	return string([]rune(s)[:limit-1]) + "…"
}

func (c *canvas) draw() {
	if reason := c.absent(c.moment); reason != "" {
		c.line(text("%s: %s", c.titles[c.moment], reason))
	} else {
		c.line(text("%s: ", c.titles[c.moment]), c.cell(&c.free), text(" free of "), c.cell(&c.total))
		c.counts()
		c.order()
		c.rows()
		c.written()
	}
	c.words()
}

func (c *canvas) cell(col *column) piece {
	cell := col.cells[c.moment]
	return piece{cell.value, cell.mark}
}

// counts draws the pool as a row of boxes. A box shows the reference count of one block, or of a run of blocks with
// equal counts.
func (c *canvas) counts() {
	if len(c.pool) == 0 {
		return
	}
	const label = "ref_count "
	w := c.boxWidth()
	margin := strings.Repeat(" ", indent+len(label))
	top, bottom := margin+"┌", margin+"└"
	middle := []piece{text("%*s%s│", indent, "", label)}
	columns := pick(c.pool, c.width-len(margin)-1, func(int) int { return w + 1 }, 2)
	for n, i := range columns {
		right := [3]string{"┬", "│", "┴"}
		if n == len(columns)-1 {
			right = [3]string{"┐", "│", "┘"}
		}
		if i == gap {
			top, bottom, middle = top+"…", bottom+"…", append(middle, text("…"))
		} else {
			cell := c.pool[i].cells[c.moment]
			top += centre(c.pool[i].label, w, "─")
			middle = append(middle, piece{centre(cell.value, w, shade(cell.value)), cell.mark})
			bottom += strings.Repeat("─", w)
		}
		top, middle, bottom = top+right[0], append(middle, text("%s", right[1])), bottom+right[2]
	}
	c.line(text("%s", top))
	c.line(middle...)
	c.line(text("%s", bottom))
}

// shade returns the character that fills the box of a block with this reference count.
func shade(count string) string {
	switch count {
	case "", "0":
		return " "
	case "1":
		return "░"
	}
	return "▓"
}

func (c *canvas) boxWidth() int {
	w := 0
	for i := range c.pool {
		w = max(w, utf8.RuneCountInString(c.pool[i].label))
		for _, cell := range c.pool[i].cells {
			w = max(w, len(cell.value))
		}
	}
	return w + 2
}

func centre(s string, width int, fill string) string {
	left := width - utf8.RuneCountInString(s)
	return strings.Repeat(fill, left/2) + s + strings.Repeat(fill, left-left/2)
}

// picked formats some columns of a strip. The function pick chooses columns that together are not longer than limit, in
// characters. picked formats a column's label and value by format, and leaves out a chosen column that has no value at
// this moment. In the place of columns that were not chosen, it writes placeholder.
func (c *canvas) picked(s strip, limit int, format, placeholder string) (pieces []piece) {
	show := func(i, moment int) piece {
		cell := s[i].cells[moment]
		return piece{fmt.Sprintf(format, strings.TrimPrefix(s[i].label, "all"), cell.value), cell.mark}
	}
	width := func(i int) int {
		w := 0
		for moment := range moments {
			w = max(w, utf8.RuneCountInString(show(i, moment).text))
		}
		return w
	}
	for _, i := range pick(s, limit, width, utf8.RuneCountInString(placeholder)) {
		switch {
		case i == gap:
			pieces = append(pieces, text("%s", placeholder))
		case s[i].cells[c.moment].value != "":
			pieces = append(pieces, show(i, c.moment))
		}
	}
	return pieces
}

func (c *canvas) order() {
	head := text("%*sactive_seqs: head", indent, "")
	limit := c.width - length(head) - length(text(" → head"))
	pieces := c.picked(c.list, limit, " → %[2]s", " → …")
	c.line(slices.Concat([]piece{head}, pieces, []piece{c.closing(c.moment)})...)
}

// rows draws the sequences, with one line for each table. In a narrow drawing, a sequence has a line before those of
// its tables.
func (c *canvas) rows() {
	chosen, left := c.view.rows(maxRows)
	for n, r := range chosen {
		s := &c.sequences[r.sequence]
		if !s.existsAt(c.moment) {
			if s.missing && c.moment == actual && r.table == 0 {
				c.line(piece{fmt.Sprintf("%*sno %s", indent, "", compare.SequenceName(s.id)), wrong})
			}
			continue
		}
		if r.table > 0 && s.tables[r.table].hidden(c.moment) {
			continue
		}
		head := []piece{text("%*s", indent, ""), c.name(s, c.moment), text("  kv_count "), c.cell(&s.count)}
		first := n == 0 || chosen[n-1].sequence != r.sequence
		if c.width < narrow {
			if first {
				c.line(head...)
			}
			head = []piece{text("  ")}
		} else if !first {
			head = []piece{text("%*s", length(head...), "")}
		}
		var table []piece
		if len(s.tables) > 0 {
			table = c.table(&s.tables[r.table], c.width-length(head...))
		}
		if c.width >= narrow || table != nil {
			c.line(append(head, table...)...)
		}
	}
	if left > 0 {
		c.line(text("%*s(%s)", indent, "", moreLines(left)))
	}
}

func length(pieces ...piece) (n int) {
	for _, p := range pieces {
		n += utf8.RuneCountInString(p.text)
	}
	return n
}

func (c *canvas) table(l2 *table, limit int) []piece {
	cell := l2.cells[c.moment]
	if l2.hidden(c.moment) {
		return nil
	}
	if cell.value == null {
		return []piece{text("  "), {l2.label + " NULL", cell.mark}}
	}
	pieces := []piece{text("  "), {l2.label, cell.mark}}
	if len(l2.entries) == 0 {
		return append(pieces, text(" all -1"))
	}
	return append(pieces, c.picked(l2.entries, limit-length(pieces...), " %s→%s", " …")...)
}

func (c *canvas) written() {
	if len(c.records) > 0 {
		head := text("%*srecords of block %d:", indent, "", c.block)
		c.line(append([]piece{head}, c.picked(c.records, c.width-length(head), " [%s] %s", " …")...)...)
	}
}

// words writes in words what the colours mark, for readers who do not see colours.
func (c *canvas) words() {
	switch c.moment {
	case expected:
		for n := min(len(c.changes), 40); n > 0; n-- { // as many as fit
			said := strings.Join(c.changes[:n], "; ")
			if n < len(c.changes) {
				said += fmt.Sprintf("; and %d more", len(c.changes)-n)
			}
			if lines := c.wrap("changed: " + said); len(lines) <= maxWords || n == 1 {
				c.say(lines, changed)
				return
			}
		}
	case actual:
		for i, mistake := range c.mistakes {
			if i == maxWords && len(c.mistakes) > maxWords+1 {
				c.say([]string{fmt.Sprintf("wrong: %d more", len(c.mistakes)-i)}, wrong)
				return
			}
			c.say(c.wrap("wrong: "+mistake), wrong)
		}
	}
}

func (c *canvas) say(lines []string, m mark) {
	for _, line := range lines {
		c.line(piece{fmt.Sprintf("%*s%s", indent, "", line), m})
	}
}

func (c *canvas) wrap(text string) []string {
	return terminal.Wrap(text, terminal.Columns-c.width+indent)
}
