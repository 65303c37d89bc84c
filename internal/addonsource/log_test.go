package addonsource

import (
	"io"
	"log"
	"testing"
)

func discard(*testing.T) *log.Logger { return log.New(io.Discard, "", 0) }
