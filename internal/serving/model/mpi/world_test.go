//go:build mpi

package mpi

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
)

// The test binary is a rank if this is set.
const asRank = "LLM_TEST_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(asRank) == "" {
		os.Exit(m.Run())
	}
	w, err := Start(time.Minute)
	if err == nil {
		err = check(w)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	w.End()
}

// Ensure that sums have the same bits as in one process. Gathered, broadcast and exchanged data must arrive.
func TestProcessesComputeTheBitsOfWorkers(t *testing.T) {
	for _, n := range []string{"2", "4"} {
		c := exec.Command("mpirun", "-n", n, "--oversubscribe", os.Args[0])
		c.Env = append(os.Environ(), asRank+"=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s processes: %s", n, out)
	}
}

func check(w *World) error {
	for _, n := range []int{1, 768, 100_003} { // short ones are sent at once, long ones are not
		x := make([][]float32, w.size)
		rnd := rand.New(rand.NewPCG(uint64(n), 6))
		for i := range x {
			for range n {
				x[i] = append(x[i], float32(math.Ldexp(rnd.NormFloat64(), rnd.IntN(20))))
			}
		}
		want := slices.Clone(x[0])
		for i := range want {
			want[i] += x[1][i]
			if w.size == 4 {
				want[i] += x[2][i] + x[3][i]
			}
		}
		got := x[w.rank]
		if err := w.AllReduce(w.rank, got); err != nil {
			return err
		}
		for i := range want {
			if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
				return fmt.Errorf("value %d of %d on rank %d: %v, want %v", i, n, w.rank, got[i], want[i])
			}
		}
	}
	if err := checkGather(w); err != nil {
		return err
	}
	all, err := w.Exchange([]byte{byte(w.rank)})
	for i := range all {
		if err == nil && !slices.Equal(all[i], []byte{byte(i)}) {
			err = fmt.Errorf("rank %d got %v from rank %d", w.rank, all[i], i)
		}
	}
	if err != nil {
		return err
	}
	if w.rank == 0 {
		return w.Broadcast([]byte("a step"))
	}
	message, err := w.Receive(0)
	if err == nil && string(message) != "a step" {
		err = fmt.Errorf("rank %d received %q", w.rank, message)
	}
	return err
}

// checkGather gathers two rows. Rank r contributes r+1 columns. Value v is in row v / 100 and column v % 100.
func checkGather(w *World) error {
	var columns []model.Columns
	width := 0
	for r := range w.size {
		columns = append(columns, model.Columns{Start: width, End: width + r + 1})
		width += r + 1
	}
	local := columns[w.rank]
	var part []float32
	for row := range 2 {
		for column := local.Start; column < local.End; column++ {
			part = append(part, float32(100*row+column))
		}
	}
	whole := make([]float32, 2*width)
	if err := w.Gather(w.rank, whole, width, part, columns); err != nil || w.rank != 0 {
		return err
	}
	for i, v := range whole {
		if v != float32(100*(i/width)+i%width) {
			return fmt.Errorf("gathered %v", whole)
		}
	}
	return nil
}
