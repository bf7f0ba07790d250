package sched

// touched has the blocks that rows of a batch read and write, for LoadFailed. Rows are recorded from the first row
// that loads until the Update of its step, because only then a load can fail.
type touched struct {
	loads  bool // the batch has a row that loads
	first  int  // index in batch.rows of rows[0]
	rows   []touchedRow
	blocks []int32
}

// A touchedRow has two ends in touched.blocks. The blocks of the row up to reads are those that it reads; they are
// listed only if the request was admitted in this step. The blocks from reads up to writes are those that the row
// writes.
type touchedRow struct{ reads, writes int }

func (t *touched) reset() { *t = touched{rows: t.rows[:0], blocks: t.blocks[:0]} }

func (t *touched) row(i int) (reads, writes []int32) {
	if i -= t.first; i < 0 || i >= len(t.rows) {
		return nil, nil
	}
	start := 0
	if i > 0 {
		start = t.rows[i-1].writes
	}
	r := t.rows[i]
	return t.blocks[start:r.reads], t.blocks[r.reads:r.writes]
}

func (c *connector) touch(b *batch) {
	if !c.s.config.Connector.Consumer {
		return
	}
	records, t := false, &b.touched
	for k := range c.s.flight.n {
		records = records || c.s.flight.batches[k].touched.loads
	}
	for i := range b.rows {
		e := &b.rows[i]
		t.loads = t.loads || e.admitted && e.r.transfers.unsettled > 0
		if records = records || t.loads; !records {
			continue
		}
		if len(t.rows) == 0 {
			t.first = i
		}
		for g, size := range c.s.blockSizes {
			if table := e.r.kv.Table(g); e.admitted {
				t.blocks = append(t.blocks, table[:min((int(e.computed)+size-1)/size, len(table))]...)
			}
		}
		reads := len(t.blocks)
		for g, size := range c.s.blockSizes {
			table := e.r.kv.Table(g)
			t.blocks = append(t.blocks, table[min(int(e.computed)/size, len(table)):]...)
		}
		t.rows = append(t.rows, touchedRow{reads, len(t.blocks)})
	}
}
