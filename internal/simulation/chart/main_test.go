//go:build long

package chart

import (
	"os"
	"testing"

	"llmmemory/internal/testkit/browsertest"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }
