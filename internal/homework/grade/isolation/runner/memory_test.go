package runner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheFileKeepsItsSize(t *testing.T) {
	m, err := newMemory()
	require.NoError(t, err)
	defer m.close()
	require.Error(t, m.file.Truncate(0))
	require.Error(t, m.file.Truncate(int64(fileSize)+1))
}

func TestNoMoreEventsThanThereIsRoomFor(t *testing.T) {
	m, err := newMemory()
	require.NoError(t, err)
	defer m.close()
	require.Len(t, m.events(3), 3)
	require.Len(t, m.events(^uint64(0)), maxEvents)
}
