package pool

import (
	"testing"

	"llmmemory/internal/testkit/rapidtest"
)

func TestMain(m *testing.M) { rapidtest.Main(m) }
