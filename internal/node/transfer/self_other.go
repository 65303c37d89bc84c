//go:build !linux

package transfer

import "os"

// permissionUser returns the user whose file permissions this process has.
func permissionUser() int { return os.Geteuid() }
