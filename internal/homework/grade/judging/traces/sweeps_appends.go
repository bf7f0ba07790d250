package traces

import "llmmemory/internal/homework/course/trace"

// The sweeps of tasks 4 and 5: appends, copies and destruction.

// copyPositions appends at each record of each logical block, with two sequences that share the block.
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

// mapPositions appends at positions without a mapped block and at positions whose block is not shared.
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

// tableSlots appends to entries without a second-level table.
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
		s.append(2, 5) // it needs no new block
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

// largePool appends to blocks whose numbers or offsets need more than 15, 16 or 17 bits.
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
