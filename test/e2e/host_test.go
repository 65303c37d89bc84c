//go:build e2e

package e2e

import (
	"os"
	"syscall"
)

// maxRSS is the most memory a finished program had, in bytes.
func maxRSS(p *os.ProcessState) int64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss * 1024 // Linux counts in KiB
}
