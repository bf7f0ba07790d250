package parallel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/parallel"
)

func TestPinnedWorkersRun(t *testing.T) {
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	cpu := 0
	for !allowed.IsSet(cpu) { // a container may not have processor 0
		cpu++
	}
	p, err := parallel.New(2, cpu, cpu)
	require.NoError(t, err)
	defer p.Close()
	c := newCounts(10, 2)
	p.Run(10, c)
	require.EqualValues(t, 1, c.done[9].Load())
}

func TestAWorkerCannotBePinnedToAProcessorThatIsNotThere(t *testing.T) {
	_, err := parallel.New(2, 0, 1000)
	require.ErrorContains(t, err, "processor 1000")
}
