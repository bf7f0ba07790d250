package directed

import (
	"fmt"
	"math"

	"llmmemory/internal/course/handout"
	"llmmemory/internal/course/trace"
)

// A sweep goes through all values of something that a mistake may be about: each
// position, each number of sharers, each size. The tester builds the states.
type sweep struct{ ops []trace.Op }

func (s *sweep) add(kind trace.Kind, engine int, numbers ...int) {
	op := trace.Op{Kind: kind, Engine: engine}
	for i, to := range []*int32{&op.A, &op.B, &op.C} {
		if i < len(numbers) {
			*to = int32(numbers[i])
		}
	}
	s.ops = append(s.ops, op)
}

// on starts an engine over n blocks, in place of the one that was there.
func (s *sweep) on(blocks int) {
	if len(s.ops) > 0 {
		s.add(trace.Destroy, 0)
	}
	s.add(trace.Init, 0, 64*blocks)
}

func (s *sweep) create(id, length int)        { s.add(trace.Create, 0, id, length) }
func (s *sweep) fork(parent, id int)          { s.add(trace.Fork, 0, parent, id) }
func (s *sweep) free(id int)                  { s.add(trace.Free, 0, id) }
func (s *sweep) append(id, value int)         { s.add(trace.Append, 0, id, value) }
func (s *sweep) count(id, n int)              { s.add(trace.Count, 0, id, n) }
func (s *sweep) hole(id, logical int)         { s.add(trace.Hole, 0, id, logical) }
func (s *sweep) move(id, to, from int)        { s.add(trace.Move, 0, id, to, from) }
func (s *sweep) table(id, slot int)           { s.add(trace.Table, 0, id, slot) }
func (s *sweep) maps(id, logical int)         { s.add(trace.Map, 0, id, logical) }
func (s *sweep) share(from, to, logical int)  { s.add(trace.Share, 0, from, to, logical) }
func (s *sweep) creates(first, length, n int) { s.add(trace.Creates, 0, first, length, n) }
func (s *sweep) forks(parent, first, n int)   { s.add(trace.Forks, 0, parent, first, n) }
func (s *sweep) appends(id, value, n int)     { s.add(trace.Appends, 0, id, value, n) }
func (s *sweep) frees(first, n int)           { s.add(trace.Frees, 0, first, n) }
func (s *sweep) init(engine, bytes int)       { s.add(trace.Init, engine, bytes) }

// idsAlike are different ints that are equal in fewer bits, or as floats.
var idsAlike = []int{1, 257, 65537, 16777217, 16777216, -1, -65535, -2147483647, 0, 256, 65536, math.MinInt32, math.MaxInt32, 2147483646}

// boundaries of one sequence.
var boundaries = []int{0, 1, 14, 15, 16, 17, 31, 32, 127, 128, 239, 240, 241, 254, 255}

// sweeps are all of them, by name and sentence.
var sweeps = []struct {
	task           int
	name, sentence string
	make           func(*sweep)
}{
	{1, "task1_any_size_of_pool", handout.InitTotal, sizes},
	{1, "task1_pool_of_3_GiB", handout.InitTotal, initLarge},
	{2, "task2_any_number_of_live_sequences", handout.CreateLinks, manyCreates},
	{2, "task2_any_number_of_calls", handout.CreateRefuses, createsAndFrees},
	{2, "task2_fits_exactly", handout.CreateProbes, exactFits},
	{2, "task2_any_length", handout.CreateCeiling, lengths},
	{2, "task2_ids_are_whole_ints", handout.CreateRefuses, createIDs},
	{2, "task2_finds_the_free_block_wherever_it_is", handout.FirstFit, firstFit},
	{2, "task2_free_passes_every_slot", handout.FreeAllSlots, freeSlots},
	{2, "task2_free_ignores_kv_count", handout.FreeAllSlots, freeCounts},
	{2, "task2_free_any_number_of_sharers", handout.FreeCounts, freeSharers},
	{2, "task2_free_any_place_of_the_list", handout.FreeDetaches, freePlaces},
	{3, "task3_copies_every_slot", handout.ForkCopies, forkSlots},
	{3, "task3_copies_whatever_kv_count_is", handout.ForkCopies, forkCounts},
	{3, "task3_any_number_of_sharers", handout.ForkShares, forkSharers},
	{3, "task3_ids_are_whole_ints", handout.ForkIDs, forkIDs},
	{4, "task4_copies_at_every_position", handout.AppendCopies, copyPositions},
	{4, "task4_copies_with_any_number_of_sharers", handout.AppendShared, copySharers},
	{4, "task4_maps_at_every_position", handout.AppendUnmapped, mapPositions},
	{4, "task4_makes_a_table_in_every_slot", handout.AppendL2, tableSlots},
	{4, "task4_fills_a_sequence_from_1_to_4096", handout.AppendIncrements, fill},
	{4, "task4_any_number_of_calls", handout.AppendStores, manyAppends},
	{4, "task4_uses_the_last_free_block", handout.AppendProbes, lastBlocks},
	{4, "task4_any_block_of_a_large_pool", handout.AppendPosition, largePool},
	{4, "task4_blocks_beyond_2_GiB", handout.AppendPosition, appendLarge},
	{4, "task4_ids_are_whole_ints", handout.AppendFinds, appendIDs},
	{5, "task5_frees_every_slot", handout.DestroyAll, destroySlots},
	{5, "task5_any_number_of_sequences", handout.DestroyAll, destroyMany},
}

// sweepCases are the sweeps of one task.
func sweepCases(task int) ([]Case, error) {
	var all []Case
	for _, from := range sweeps {
		if from.task != task {
			continue
		}
		var s sweep
		from.make(&s)
		c := Case{Task: task, Name: from.name, Sentence: from.sentence, Ops: s.ops, Sweep: true}
		if err := c.complete(); err != nil {
			return nil, fmt.Errorf("%s: %w", from.name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func sizes(s *sweep) {
	for _, bytes := range []int{64, 65, 100, 127, 128, 1023, 1024, 4095, 4096, 64*1001 + 1, 64 * 4097, 64 * 32769, 64*65537 + 63} {
		s.init(0, bytes)
		s.add(trace.Destroy, 0)
	}
	for range 300 {
		s.init(0, 640)
		s.add(trace.Destroy, 0)
	}
	for engine := range 4 {
		s.init(engine, 64*(engine+3)+16*engine)
	}
}

// large starts an engine over a pool of 3 GiB, of which only the ends can be
// touched.
func (s *sweep) large() { s.add(trace.Init, 0, 64+63, trace.MostLarge) }

const largeBlocks = trace.MostLarge<<20/64 + 1

func initLarge(s *sweep) {
	s.large()
	s.create(1, 40)
}

// appendLarge appends to blocks whose offsets in bytes need more than 31 bits, and
// copies them.
func appendLarge(s *sweep) {
	s.large()
	s.create(1, 16)
	for i, block := range []int{largeBlocks - 1, largeBlocks - 2, largeBlocks - 1000} {
		s.add(trace.Place, 0, 1, i+1, block)
		s.count(1, 16*(i+1)+i)
		s.append(1, 100+i)
		s.append(1, 200+i)
		s.fork(1, 2)
		s.append(2, 300+i)
		s.append(1, 400+i)
		s.free(2)
	}
}

func manyCreates(s *sweep) {
	s.on(1400)
	s.creates(-600, 1, 1200)
	for _, id := range []int{-600, -1, 0, 599} {
		s.create(id, 1)
	}
	s.create(600, 17)
}

func createsAndFrees(s *sweep) {
	s.on(40)
	for range 40 {
		s.creates(1, 17, 19)
		s.create(1, 1)
		s.create(100, 32)
		s.frees(1, 19)
		s.free(100)
	}
}

func exactFits(s *sweep) {
	for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 128, 240, 241, 255, 256} {
		s.on(n)
		s.create(1, 16*n+1)
		s.create(1, 16*n)
		s.create(2, 1)
		s.on(n + 1)
		s.create(1, 1)
		s.create(2, 16*n+1)
		s.create(2, 16*n-15)
		s.create(3, 1)
	}
	s.on(257)
	s.create(1, 4097)
	s.create(1, 4096)
	s.create(2, 16)
	s.create(3, 1)
}

func lengths(s *sweep) {
	s.on(700)
	for _, n := range boundaries {
		for _, length := range []int{16*n + 1, 16*n + 2, 16*n + 15, 16*n + 16} {
			s.create(1, length)
			s.free(1)
		}
	}
	for slot := range 16 {
		for _, blocks := range []int{16*slot + 1, 16*slot + 8, 16*slot + 15} {
			s.create(1, 16*blocks)
			s.free(1)
		}
	}
	for _, length := range []int{0, -1, -15, -16, -17, -4096, -65535, math.MinInt32, math.MinInt32 + 1, 4097, 4112, 8192, 32767, 32768, 65535, 65536,
		65537, 65536*16 + 1, 1<<24 + 1, math.MaxInt32 - 16, math.MaxInt32 - 15, math.MaxInt32 - 14, math.MaxInt32} {
		s.create(1, length)
	}
}

func createIDs(s *sweep) {
	s.on(100)
	for _, id := range idsAlike {
		s.create(id, 3)
		s.create(id, 3)
	}
	for _, id := range idsAlike {
		s.free(id)
		s.create(id, 20)
	}
}

func firstFit(s *sweep) {
	s.on(300)
	s.create(1, 4096)
	s.create(2, 44*16)
	for _, block := range boundaries {
		s.hole(1, block)
		s.create(3, 5)
		s.free(3)
		s.maps(1, block)
	}
	for _, block := range []int{3, 90, 200} {
		s.hole(1, block)
	}
	s.hole(2, 43)
	s.create(3, 64)
}

// slots builds a sequence with a table in one slot alone, for all slots, and some
// with holes and tables without a mapped entry.
func slots(s *sweep, then func(id int)) {
	for slot := range 16 {
		s.on(60)
		s.create(1, 40)
		if slot > 0 {
			s.move(1, slot, 0)
		}
		then(1)
		s.create(2, 16*16)
		s.move(2, 15-slot, 0)
		s.table(2, (slot+3)%16)
		s.hole(2, (15-slot)*16+slot)
		then(2)
		s.create(3, 17)
		s.hole(3, 0)
		s.maps(3, 16*slot+slot)
		then(3)
	}
}

func freeSlots(s *sweep) {
	slots(s, func(id int) {
		s.fork(id, 9)
		s.free(id)
		s.free(9)
	})
}

// counts builds sequences whose kv_count is not that of their tables.
func counts(s *sweep, then func(id int)) {
	for _, n := range []int{0, 1, 16, 17, 255, 256, 257, 512, 4095, 4096} {
		s.on(120)
		s.create(1, 300)
		s.count(1, n)
		then(1)
		s.create(2, 20)
		s.table(2, 1)
		s.table(2, 15)
		s.count(2, n)
		then(2)
		s.create(3, 600)
		s.hole(3, 0)
		s.hole(3, 16)
		s.count(3, n)
		then(3)
	}
}

func freeCounts(s *sweep) { counts(s, s.free) }

func freeSharers(s *sweep) {
	for sharers := 2; sharers <= 20; sharers++ {
		s.on(30)
		s.create(0, 40)
		for id := 1; id < sharers; id++ {
			s.fork(0, id)
		}
		for id := range sharers {
			s.free((id + sharers/2) % sharers)
		}
		s.create(50, 400)
		s.free(50)
	}
}

func freePlaces(s *sweep) {
	s.on(300)
	s.creates(-100, 1, 200)
	for _, id := range []int{-100, 99, -99, 98, 0, 7, -7} {
		s.free(id)
		s.free(id)
	}
	s.frees(-98, 60)
	s.create(5000, 1)
	s.free(5000)
	s.frees(-38, 136)
}

func forkSlots(s *sweep) {
	slots(s, func(id int) {
		s.fork(id, 10+id)
		s.fork(10+id, 20+id)
		s.free(id)
		s.fork(20+id, id)
	})
}

func forkCounts(s *sweep) {
	counts(s, func(id int) {
		s.fork(id, 10+id)
		s.fork(id, 20+id)
	})
}

func forkSharers(s *sweep) {
	s.on(20)
	s.create(0, 300)
	for id := range 40 {
		s.fork(id, id+1)
	}
	s.forks(7, 100, 300)
	s.fork(399, 400)
	s.fork(20, 399)
}

func forkIDs(s *sweep) {
	s.on(10)
	s.create(5, 20)
	for _, id := range idsAlike {
		s.fork(5, id)
		s.fork(5, id)
		s.fork(id, 65541)
		s.free(65541)
		s.fork(id+3, 5)
	}
}

// copyPositions appends at each record of each logical block while two sequences
// share the block.
func copyPositions(s *sweep) {
	s.on(258)
	s.create(1, 4096)
	s.fork(1, 2)
	for logical := range 256 {
		for offset := range 16 {
			s.count(1, 16*logical+offset)
			s.append(1, 1000*logical+offset)
			s.share(2, 1, logical)
		}
	}
}

func copySharers(s *sweep) {
	for sharers := 2; sharers <= 20; sharers++ {
		for _, at := range []int{0, 1, 15, 16, 255, 256, 4095} {
			s.on(257 + 20)
			s.create(0, 4096)
			for id := 1; id < sharers; id++ {
				s.fork(0, id)
			}
			for _, id := range []int{sharers / 2, 0} {
				s.count(id, at)
				s.append(id, 7*at+sharers)
			}
		}
	}
}

// mapPositions appends where no block is mapped and where one of its own is.
func mapPositions(s *sweep) {
	s.on(258)
	s.create(1, 4096)
	for logical := range 256 {
		for _, offset := range []int{0, 1, 8, 15} {
			s.hole(1, logical)
			s.count(1, 16*logical+offset)
			s.append(1, -1000*logical-offset)
			s.count(1, 16*logical+offset)
			s.append(1, 1000*logical+offset)
		}
	}
}

// tableSlots appends where there is no table.
func tableSlots(s *sweep) {
	s.on(4)
	for slot := range 16 {
		for _, logical := range []int{16 * slot, 16*slot + slot, 16*slot + 15} {
			s.create(1, 1)
			if slot == 0 {
				s.move(1, 7, 0)
			}
			s.count(1, 16*logical+logical%16)
			s.append(1, logical)
			s.append(1, -logical)
			s.free(1)
		}
	}
}

func fill(s *sweep) {
	s.on(258)
	s.create(1, 1)
	s.appends(1, 1, 4090)
	for i := range 8 {
		s.append(1, i)
	}
	s.on(256)
	s.create(1, 4095)
	s.append(1, 1)
	s.append(1, 2)
}

func manyAppends(s *sweep) {
	s.on(1300)
	for id := range 5 {
		s.create(id, 1)
		s.appends(id, 100*id, 4095)
	}
	for id := range 5 {
		s.append(id, 1)
	}
	s.create(9, 5)
	for range 300 {
		s.append(9, 1)
		s.append(77, 1)
	}
}

func lastBlocks(s *sweep) {
	for _, n := range []int{1, 2, 15, 16, 17, 256} {
		s.on(n + 1)
		s.create(1, 16*n)
		s.append(1, 1) // the last block, as a new page; n = 256: none is needed
		s.append(1, 2)
		s.create(2, 1)
		s.append(2, 3)
		s.on(n + 1)
		s.create(1, 16*n-3)
		s.fork(1, 2)
		s.append(1, 4) // the last block, as a copy
		s.append(2, 5) // which needs none
		s.append(1, 6)
		s.on(n)
		s.create(1, 16*n-2)
		s.fork(1, 2)
		s.append(1, 7)
		s.append(2, 8)
		s.free(1)
		s.append(2, 9)
		s.append(2, 10)
	}
}

// largePool appends to blocks whose numbers or offsets need more than 15, 16 or 17
// bits.
func largePool(s *sweep) {
	s.on(65800)
	at := 0
	for id := 0; at < 65792; id++ {
		s.create(id, 4096)
		at += 256
	}
	for _, block := range []int{0, 511, 512, 1023, 1024, 8191, 8192, 16383, 16384, 32767, 32768, 65535, 65536, 65791} {
		s.count(block/256, block%256*16+5)
		s.append(block/256, block)
	}
	s.fork(256, 1000)
	s.count(1000, 9)
	s.append(1000, 6)
}

func appendIDs(s *sweep) {
	s.on(100)
	for _, id := range idsAlike {
		s.append(id, 1)
		s.create(id, 3)
		s.append(id, 2)
	}
	for i, id := range idsAlike {
		s.append(id, i)
	}
}

func destroySlots(s *sweep) {
	slots(s, func(id int) { s.fork(id, id+10) })
	counts(s, func(id int) { s.fork(id, id+10) })
	s.add(trace.Destroy, 0)
}

func destroyMany(s *sweep) {
	for _, n := range []int{0, 1, 2, 3, 20, 1000} {
		s.on(1100)
		if n > 0 {
			s.creates(-n/2, 1, n)
			s.forks(-n/2, 5000, n)
		}
	}
	s.add(trace.Destroy, 0)
}
