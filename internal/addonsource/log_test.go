package addonsource

import (
	"io"
	"log"
	"testing"
)

func discardLogger(*testing.T) *log.Logger { return log.New(io.Discard, "", 0) }
