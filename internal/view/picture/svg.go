package picture

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Lengths of the drawing, in its own units.
const (
	width, height = 980, 450
	left          = 20
	blockW        = 67
	wordH         = 15
	headH         = 20
	blockH        = headH + blockSize*wordH + 6
	tableY        = 60
	cellW, cellH  = 46, 30
	poolY         = 210
	queueY        = 400
)

const style = `
  text { font: 12px ui-sans-serif, system-ui, sans-serif; fill: var(--ink) }
  .title { font-weight: 600; font-size: 13px }
  .word { font-size: 11px }
  .small { font-size: 10px; fill: var(--soft) }
  rect { stroke: var(--soft); rx: 4px }
  .shared { fill: var(--shared) } .own { fill: var(--own) } .cached { fill: var(--cached) }
  .free, .null { fill: var(--paper) } .null { stroke-dasharray: 3 3 }
  path { fill: none; stroke-width: 1.6; opacity: .85 }
  .r0 { stroke: var(--r0) } .r1 { stroke: var(--r1) } .r2 { stroke: var(--r2) }
  .copy { stroke: var(--soft); stroke-dasharray: 4 3 }
  .cell { fill: var(--paper); stroke-width: 1.6 }
  svg { --ink: #1f2328; --soft: #6e7781; --paper: #ffffff; --shared: #ffd8a8; --own: #c5dcff; --cached: #e3e6ea;
        --r0: #0969da; --r1: #8250df; --r2: #1a7f37 }
  @media (prefers-color-scheme: dark) {
    svg { --ink: #e6edf3; --soft: #9198a1; --paper: #0d1117; --shared: #7a4b12; --own: #1f4377; --cached: #30363d;
          --r0: #58a6ff; --r1: #bc8cff; --r2: #3fb950 }
  }
`

// Draw writes the picture.
func Draw(w io.Writer) error {
	s, err := play()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n<style>%s</style>\n",
		width, height, "Block tables of three requests, the blocks they name, and the queue of free blocks", style)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" style="fill:var(--paper);stroke:none"/>`+"\n", width, height)
	for i := range s.tables {
		s.drawTable(&b, i)
	}
	label(&b, left, poolY-12, "title", "block pool")
	for id := range blocks {
		s.drawBlock(&b, id)
	}
	for _, c := range s.copies {
		from, to, y := blockX(int(c.Src))+blockW/2-4, blockX(int(c.Dst))+blockW/2-4, poolY+blockH
		fmt.Fprintf(&b, `<path class="copy" d="M%d %d C%d %d %d %d %d %d"/>`+"\n", from, y, from, y+30, to, y+30, to, y+3)
		label(&b, to+8, y+17, "small", fmt.Sprintf("%d was copied to %d before it was written", c.Src, c.Dst))
	}
	legend(&b)
	s.drawQueue(&b)
	b.WriteString("</svg>\n")
	_, err = io.WriteString(w, b.String())
	return err
}

func label(b *strings.Builder, x, y int, class, text string) {
	fmt.Fprintf(b, `<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, x, y, html.EscapeString(text))
}

func box(b *strings.Builder, x, y, w, h int, class string) {
	fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`+"\n", class, x, y, w, h)
}

// drawTable draws the i-th table, and a line from each entry to its block.
func (s *scene) drawTable(b *strings.Builder, i int) {
	t := &s.tables[i]
	x := left + 30 + i*(width-2*left)/len(s.tables)
	label(b, x, tableY-28, "title", t.title)
	label(b, x, tableY-11, "small", fmt.Sprintf("block table, %d tokens computed", t.tokens))
	for k, id := range t.ids {
		from, to := x+k*cellW+cellW/2, blockX(int(id))+blockW/2-4+(i-1)*12
		fmt.Fprintf(b, `<path class="r%d" d="M%d %d C%d %d %d %d %d %d"/>`+"\n", i,
			from, tableY+cellH, from, tableY+cellH+60, to, poolY-60, to, poolY)
		box(b, x+k*cellW, tableY, cellW-4, cellH, fmt.Sprintf("cell r%d", i))
		label(b, x+k*cellW+15, tableY+20, "", fmt.Sprint(id))
	}
}

func blockX(id int) int { return left + id*blockW }

// class is what a block is.
func (s *scene) class(id int) string {
	switch {
	case id == 0:
		return "null"
	case s.counts[id] > 1:
		return "shared"
	case s.counts[id] == 1:
		return "own"
	case s.cached[id]:
		return "cached"
	}
	return "free"
}

func (s *scene) drawBlock(b *strings.Builder, id int) {
	x, class := blockX(id), s.class(id)
	box(b, x, poolY, blockW-7, blockH, class)
	label(b, x+5, poolY+15, "title", fmt.Sprint(id))
	switch class {
	case "null":
		label(b, x+5, poolY+headH+12, "small", "null block")
		return
	case "free":
		label(b, x+5, poolY+headH+12, "small", "free")
		return
	}
	label(b, x+35, poolY+15, "small", fmt.Sprintf("× %d", s.counts[id]))
	for k, word := range s.memory[id*blockSize:][:blockSize] {
		label(b, x+5, poolY+headH+12+k*wordH, "word", word)
	}
}

func legend(b *strings.Builder) {
	x, y := left, poolY+blockH+42
	for _, l := range []struct{ class, text string }{
		{"shared", "named by several tables"}, {"own", "named by one"}, {"cached", "free, but can still be hit"}, {"free", "free"},
	} {
		box(b, x, y, 14, 14, l.class)
		label(b, x+20, y+11, "small", l.text)
		x += 40 + 6*len(l.text)
	}
}

// drawQueue lists the free blocks as they will be used.
func (s *scene) drawQueue(b *strings.Builder) {
	label(b, left, queueY-12, "title", "free queue, next to be used first")
	for i, id := range s.queue {
		x := left + i*cellW
		box(b, x, queueY, cellW-14, cellH, s.class(int(id)))
		label(b, x+9, queueY+20, "", fmt.Sprint(id))
		if i > 0 {
			label(b, x-12, queueY+20, "small", "→")
		}
	}
}
