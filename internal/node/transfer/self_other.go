//go:build !linux

package transfer

import "os"

// self returns the user whose file permissions this process has.
func self() int { return os.Geteuid() }
