package traces

import (
	"math"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/course/trace"
)

// A sweep is a trace that tests all values of one quantity: each position, each number of sharers, or each
// size. The tester builds the states.
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

// on replaces the engine by one with n blocks.
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

// idsAlike are different ints that become equal if they are cut to fewer bits or converted to float.
var idsAlike = []int{1, 257, 65537, 16777217, 16777216, -1, -65535, -2147483647, 0, 256, 65536, math.MinInt32, math.MaxInt32, 2147483646}

var boundaries = []int{0, 1, 14, 15, 16, 17, 31, 32, 127, 128, 239, 240, 241, 254, 255}

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
	{4, "task4_any_block_of_a_large_pool", handout.AppendStores, largePool},
	{4, "task4_blocks_beyond_2_GiB", handout.AppendStores, appendLarge},
	{4, "task4_ids_are_whole_ints", handout.AppendFinds, appendIDs},
	{5, "task5_frees_every_slot", handout.DestroyAll, destroySlots},
	{5, "task5_any_number_of_sequences", handout.DestroyAll, destroyMany},
}

func sweepsOf(task int) (all []Case) {
	for _, from := range sweeps {
		if from.task == task {
			var s sweep
			from.make(&s)
			all = append(all, Case{Task: task, Name: from.name, Sentence: from.sentence, Ops: s.ops, Real: tested(task, from.name), Sweep: true})
		}
	}
	return all
}
