package sched

// touched has the blocks that rows of a batch read and write, for LoadFailed. A row is recorded if it loads, if an
// earlier row of the batch loads, or if a row of a step in flight loads. LoadFailed does not need the other rows.
type touched struct {
	loads    bool // the batch has a row that loads
	firstRow int  // index in batch.rows of rows[0]
	rows     []touchedRow
	blocks   []int32
}

// A touchedRow has the ends of two ranges of touched.blocks. The first range begins where the previous row's ranges
// end, and ends at readsEnd. It has the blocks that the row reads, but only if the request was admitted in this step;
// otherwise it is empty. The second range is from readsEnd to writesEnd, and has the blocks that the row writes.
type touchedRow struct{ readsEnd, writesEnd int }

func (t *touched) reset() { *t = touched{rows: t.rows[:0], blocks: t.blocks[:0]} }

func (t *touched) row(i int) (reads, writes []int32) {
	if i -= t.firstRow; i < 0 || i >= len(t.rows) {
		return nil, nil
	}
	start := 0
	if i > 0 {
		start = t.rows[i-1].writesEnd
	}
	r := t.rows[i]
	return t.blocks[start:r.readsEnd], t.blocks[r.readsEnd:r.writesEnd]
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
			t.firstRow = i
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
