package drawing

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/grade/compare"
)

const (
	narrowest = 40 // columns that a drawing needs
	mostRows  = 4  // lines of sequences for each moment
	mostWords = 4  // lines of what is wrong
	indent    = 2
)

// Text draws a scene for a terminal of columns columns, at least 40; 0 means 80.
// The difference, which may be nil, names the call. Nothing is drawn of a scene
// that is nil or has no engine at all. Lines end in "\n".
func Text(s *compare.Scene, d *compare.Difference, width int, colour bool) string {
	v := newView(s, d)
	if v == nil {
		return ""
	}
	if width == 0 {
		width = 80
	}
	t := &terminal{view: v, width: max(width, narrowest), colour: colour}
	for moment := range moments {
		if moment > 0 {
			t.line()
		}
		t.moment(moment)
	}
	t.legend()
	return t.b.String()
}

// A terminal is a text that grows line by line, none wider than the terminal.
type terminal struct {
	*view
	width  int
	colour bool
	b      strings.Builder
}

// A piece of a line, with the mark that colours it.
type piece struct {
	text string
	mark mark
}

func text(format string, values ...any) piece { return piece{text: fmt.Sprintf(format, values...)} }

// line ends a line that is cut where the terminal ends.
func (t *terminal) line(pieces ...piece) {
	room := t.width
	for _, p := range pieces {
		if n := utf8.RuneCountInString(p.text); n > room {
			p.text = cut(p.text, room)
		}
		room -= utf8.RuneCountInString(p.text)
		t.b.WriteString(t.paint(p))
	}
	t.b.WriteByte('\n')
}

func cut(s string, room int) string {
	if room < 1 {
		return ""
	}
	return string([]rune(s)[:room-1]) + "…"
}

func (t *terminal) paint(p piece) string {
	if !t.colour || p.mark == plain || p.text == "" {
		return p.text
	}
	return [...]string{changed: "\x1b[1;36m", wrong: "\x1b[1;31m"}[p.mark] + p.text + "\x1b[0m"
}

func (t *terminal) moment(moment int) {
	if why := t.absent(moment); why != "" {
		t.line(text("%s: %s", t.titles[moment], why))
	} else {
		t.line(text("%s: ", t.titles[moment]), t.cell(&t.free, moment), text(" free of "), t.cell(&t.total, moment))
		t.counts(moment)
		t.order(moment)
		t.rows(moment)
		t.written(moment)
	}
	t.words(moment)
}

func (t *terminal) cell(c *column, moment int) piece {
	at := c.cells[moment]
	return piece{at.value, at.mark}
}

// counts draws the pool: a box for each block, or run of blocks, with its count
// in it.
func (t *terminal) counts(moment int) {
	if len(t.pool) == 0 {
		return
	}
	const label = "ref_count "
	w := t.boxWidth()
	columns := pick(t.pool, t.width-indent-len(label)-1, func(int) int { return w + 1 }, 2)
	top, middle, bottom := []piece{text("%*s", indent+len(label), "")}, []piece{text("%*s%s", indent, "", label)}, []piece{text("%*s", indent+len(label), "")}
	for n, i := range columns {
		first, last := n == 0, n == len(columns)-1
		corners := [2]string{"┬", "┴"}
		if first {
			corners = [2]string{"┌", "└"}
		}
		top, bottom, middle = append(top, text("%s", corners[0])), append(bottom, text("%s", corners[1])), append(middle, text("│"))
		if i == gap {
			top, bottom, middle = append(top, text("…")), append(bottom, text("…")), append(middle, text("…"))
		} else {
			top = append(top, text("%s", centre(t.pool[i].label, w, "─")))
			bottom = append(bottom, text("%s", strings.Repeat("─", w)))
			middle = append(middle, t.box(i, moment, w))
		}
		if last {
			top, bottom, middle = append(top, text("┐")), append(bottom, text("┘")), append(middle, text("│"))
		}
	}
	t.line(top...)
	t.line(middle...)
	t.line(bottom...)
}

// boxWidth is that of every box.
func (t *terminal) boxWidth() int {
	w := 0
	for i := range t.pool {
		w = max(w, utf8.RuneCountInString(t.pool[i].label))
		for _, at := range t.pool[i].cells {
			w = max(w, len(at.value))
		}
	}
	return w + 2
}

// box is the inside of a box: the count.
func (t *terminal) box(i, moment, width int) piece {
	c := t.pool[i].cells[moment]
	shade := map[fill]string{unfilled: " ", free: " ", used: "░", shared: "▓"}[c.fill]
	return piece{centre(c.value, width, shade), c.mark}
}

func centre(s string, width int, with string) string {
	left := width - utf8.RuneCountInString(s)
	return strings.Repeat(with, left/2) + s + strings.Repeat(with, left-left/2)
}

func (t *terminal) order(moment int) {
	pieces := []piece{text("%*sactive_seqs: head", indent, "")}
	room := t.width - length(pieces) - length([]piece{text(" → head")})
	width := func(i int) int {
		w := 0
		for _, c := range t.list[i].cells {
			w = max(w, len(c.value))
		}
		return len([]rune(" → ")) + w
	}
	for _, i := range pick(t.list, room, width, 4) {
		switch {
		case i == gap:
			pieces = append(pieces, text(" → …"))
		case t.list[i].cells[moment].value != "":
			pieces = append(pieces, text(" → "), t.cell(&t.list[i], moment))
		}
	}
	t.line(append(pieces, t.closing(moment))...)
}

// rows draws the sequences, a line for each table.
func (t *terminal) rows(moment int) {
	chosen, left := t.view.rows(mostRows)
	for n, r := range chosen {
		s := &t.sequences[r.sequence]
		if !s.present[moment] {
			if s.missing && moment == actual && r.table == 0 {
				t.line(piece{fmt.Sprintf("%*sno sequence %d", indent, "", s.id), wrong})
			}
			continue
		}
		if r.table > 0 && s.tables[r.table].hidden(moment) {
			continue
		}
		head := []piece{text("%*s", indent, ""), t.name(s, moment), text("  kv_count "), t.cell(&s.count, moment)}
		if n > 0 && chosen[n-1].sequence == r.sequence {
			head = []piece{text("%*s", length(head), "")}
		}
		if len(s.tables) > 0 {
			head = append(head, t.table(&s.tables[r.table], moment, t.width-length(head))...)
		}
		t.line(head...)
	}
	if left > 0 {
		t.line(text("%*s(%s)", indent, "", more(left)))
	}
}

func length(pieces []piece) (n int) {
	for _, p := range pieces {
		n += utf8.RuneCountInString(p.text)
	}
	return n
}

// table is one L2 table: index in it, block.
func (t *terminal) table(l2 *table, moment, room int) []piece {
	at := l2.cells[moment]
	if l2.hidden(moment) {
		return nil
	}
	if at.value == null {
		return []piece{text("  "), {l2.label + " NULL", at.mark}}
	}
	pieces := []piece{text("  "), {l2.label, at.mark}}
	if len(l2.entries) == 0 {
		return append(pieces, text(" all -1"))
	}
	entry := func(i, moment int) piece {
		c := l2.entries[i].cells[moment]
		return piece{" " + strings.TrimPrefix(l2.entries[i].label, "all") + "→" + c.value, c.mark}
	}
	width := func(i int) int {
		w := 0
		for moment := range moments {
			w = max(w, utf8.RuneCountInString(entry(i, moment).text))
		}
		return w
	}
	for _, i := range pick(l2.entries, room-length(pieces), width, 2) {
		if i == gap {
			pieces = append(pieces, text(" …"))
			continue
		}
		pieces = append(pieces, entry(i, moment))
	}
	return pieces
}

func (t *terminal) written(moment int) {
	if len(t.records) == 0 {
		return
	}
	head := text("%*srecords of block %d:", indent, "", t.block)
	entry := func(i, moment int) piece {
		c := t.records[i].cells[moment]
		return piece{fmt.Sprintf(" [%s] %s", t.records[i].label, c.value), c.mark}
	}
	width := func(i int) int {
		w := 0
		for moment := range moments {
			w = max(w, len(entry(i, moment).text))
		}
		return w
	}
	pieces := []piece{head}
	for _, i := range pick(t.records, t.width-len(head.text), width, 2) {
		if i == gap {
			pieces = append(pieces, text(" …"))
			continue
		}
		pieces = append(pieces, entry(i, moment))
	}
	t.line(pieces...)
}

// words says what is marked, so that it is known without colour.
func (t *terminal) words(moment int) {
	switch moment {
	case expected:
		for n := min(len(t.changes), 40); n > 0; n-- { // as many as have room
			said := strings.Join(t.changes[:n], "; ")
			if n < len(t.changes) {
				said += fmt.Sprintf("; and %d more", len(t.changes)-n)
			}
			if lines := wrap("changed: "+said, t.width-indent); len(lines) <= mostWords || n == 1 {
				t.say(lines, changed)
				return
			}
		}
	case actual:
		for i, what := range t.wrong {
			if i == mostWords && len(t.wrong) > mostWords+1 {
				t.say([]string{fmt.Sprintf("wrong: %d more", len(t.wrong)-i)}, wrong)
				return
			}
			t.say(wrap("wrong: "+what, t.width-indent), wrong)
		}
	}
}

func (t *terminal) say(lines []string, m mark) {
	for _, line := range lines {
		t.line(piece{fmt.Sprintf("%*s%s", indent, "", line), m})
	}
}

// wrap breaks a text at its spaces.
func wrap(s string, room int) []string {
	var lines []string
	for word := range strings.FieldsSeq(s) {
		if n := len(lines); n > 0 && utf8.RuneCountInString(lines[n-1]+" "+word) <= room {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

func (t *terminal) legend() {
	t.line(text("%*s[ 0 ] free  [░1░] used  [▓2▓] shared", indent, ""))
}
