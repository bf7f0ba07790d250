package traces

import (
	"llmmemory/internal/homework/course/trace"
	"math"
)

// The sweeps of tasks 1 to 3: pools, sequences and forks.

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

// large starts an engine with a pool of 3 GiB, of which only the ends can be touched.
func (s *sweep) large() { s.add(trace.Init, 0, 64+63, trace.MaxLarge) }

const largeBlocks = trace.MaxLarge<<20/64 + 1

func initLarge(s *sweep) {
	s.large()
	s.create(1, 40)
}

// appendLarge appends to blocks whose offsets in bytes need more than 31 bits, and copies them.
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

// slots builds sequences with one table in each slot, sequences with holes, and sequences whose tables map
// nothing. It calls try with the id of each.
func slots(s *sweep, try func(id int)) {
	for slot := range 16 {
		s.on(60)
		s.create(1, 40)
		if slot > 0 {
			s.move(1, slot, 0)
		}
		try(1)
		s.create(2, 16*16)
		s.move(2, 15-slot, 0)
		s.table(2, (slot+3)%16)
		s.hole(2, (15-slot)*16+slot)
		try(2)
		s.create(3, 17)
		s.hole(3, 0)
		s.maps(3, 16*slot+slot)
		try(3)
	}
}

func freeSlots(s *sweep) {
	slots(s, func(id int) {
		s.fork(id, 9)
		s.free(id)
		s.free(9)
	})
}

// counts builds sequences whose kv_count does not match their tables. It calls try with the id of each.
func counts(s *sweep, try func(id int)) {
	for _, n := range []int{0, 1, 16, 17, 255, 256, 257, 512, 4095, 4096} {
		s.on(120)
		s.create(1, 300)
		s.count(1, n)
		try(1)
		s.create(2, 20)
		s.table(2, 1)
		s.table(2, 15)
		s.count(2, n)
		try(2)
		s.create(3, 600)
		s.hole(3, 0)
		s.hole(3, 16)
		s.count(3, n)
		try(3)
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
