//go:build amd64 && !purego

package amx

import (
	"os"
	"sync"

	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"
)

// Usable returns which products this process can use. The first call asks Linux for permission to use tiles, for all
// threads of the process, and compares a product of tiles with plain Go. It does not ask if the environment variable
// Environment is WithoutAMX.
//
// Without permission, the first tile instruction would end the process with SIGILL. Therefore Usable asks before it
// executes any, and executes none if Linux refuses. Permission has a price in programs whose threads have alternate
// signal stacks: afterwards, Linux refuses stacks that are too small for the 8 KB of tiles. If a thread already has such
// a stack, Linux refuses the permission. Usable then returns no products.
func Usable() Features { return usable() }

var usable = sync.OnceValue(func() Features { return detect(os.Getenv, permitted) })

func detect(getenv func(string) string, permitted func() bool) Features {
	if getenv(Environment) == WithoutAMX || !permitted() {
		return Features{}
	}
	has := Features{Int8: cpu.X86.HasAMXInt8, BF16: cpu.X86.HasAMXBF16}
	// An emulator of AMX gives permission, but cannot change what CPUID reports.
	if getenv(testVariable) == "1" {
		has = Features{Int8: true, BF16: true}
	} else if !cpu.X86.HasAMXTile || !enabled() {
		return Features{}
	}
	return has.tried()
}

// testVariable is the name of an environment variable. If it is 1, Usable does not ask the processor whether it has AMX. It
// still needs Linux's permission.
const testVariable = "LLMSERVE_TEST_AMX"

// permitted asks for permission to use tiles, as Documentation/arch/x86/xstate.rst of Linux describes.
func permitted() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}

// enabled reports whether the operating system has enabled tiles in XCR0.
func enabled() bool {
	const tiles = 1<<17 | 1<<18 // XTILECFG, XTILEDATA
	return cpu.X86.HasOSXSAVE && xcr0()&tiles == tiles
}

// tried returns those features whose product of tiles is right.
func (f Features) tried() Features {
	return Features{
		Int8: f.Int8 && right(multiplyInt8, ProductInt8),
		BF16: f.BF16 && right(multiplyBF16, ProductBF16),
	}
}

// right reports whether two functions compute the same product of full tiles.
func right(multiply func(config *Config, c, a, b *Tile), want func(c, a, b *Tile, s Shape)) bool {
	var config Config
	for t := range 3 {
		config.Configure(t, 16, 64)
	}
	var a, b, c Tile
	for r := range a {
		for i := range a[r] {
			// In BF16, the high bytes of these numbers give magnitudes from 2^-7 to 2^9.
			a[r][i], b[r][i] = byte(r*37+i*11), byte(r*13+i*29)
			if i%2 == 1 {
				a[r][i], b[r][i] = 0x3c+a[r][i]%8|a[r][i]&0x80, 0x3c+b[r][i]%8|b[r][i]&0x80
			}
		}
	}
	expected := c
	for range 2 { // the second product is added to the first
		multiply(&config, &c, &a, &b)
		want(&expected, &a, &b, Shape{Rows: 16, Words: 16, Columns: 16})
	}
	return c == expected
}

//go:noescape
func multiplyInt8(config *Config, c, a, b *Tile)

//go:noescape
func multiplyBF16(config *Config, c, a, b *Tile)

func xcr0() uint64
